# Network ${name} as a crate without the standard library. In your Cargo.toml: ${name} = { path = "this folder" }
[package]
name = "${name}"
version = "${version}"
edition = "2021"
description = "Neural network ${name}, compiled to C by deeploy."
publish = false
build = "cargo/build.rs"

[lib]
path = "cargo/lib.rs"
