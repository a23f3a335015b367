{
  "name": "${name}",
  "version": "${version}",
  "description": "Neural network ${name}, compiled to C by deeploy.",
  "keywords": ["neural network", "inference"],
  "frameworks": "*",
  "platforms": "*",
  "headers": [${", ".join(f'"{header}"' for header in headers)}],
  "build": {
    "srcDir": "src",
    "includeDir": "include",
    "flags": [${", ".join(f'"-I{folder}"' for folder in folders)}]
  }
}
