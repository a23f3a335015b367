version: "${version}"
description: Neural network ${name}, compiled to C by deeploy.
