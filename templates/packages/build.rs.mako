//! Compiles the C of the crate: for this machine with `cc`, for another one with the compiler of deeploy's target, or, in any case,
//! with those that the environment names: CC, AR, CFLAGS.
use std::{env, path::Path, process::Command};

const CROSS: &str = "${cross}"; // of the target that the network was compiled for

fn done(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{:?}: {}", command, error));
    assert!(output.status.success(), "{:?}: {}", command, String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

fn main() {
    let var = |name: &str| env::var(name).unwrap_or_default();
    let (is_native, out) = (var("TARGET") == var("HOST"), var("OUT_DIR"));
    let compiler = if !var("CC").is_empty() { var("CC") } else if is_native || CROSS.is_empty() { "cc".into() } else { CROSS.into() };
    let first = compiler.split(' ').next().unwrap_or("cc");
    let archiver = if !var("AR").is_empty() { var("AR") } else if first.ends_with("-gcc") { first.replace("-gcc", "-ar") } else { "ar".into() };
    let compile = || {
        let mut command = Command::new(first);
        command.args(compiler.split(' ').skip(1)).args(var("CFLAGS").split_whitespace());
        command
    };
    let (object, library) = (format!("{}/network.o", out), format!("{}/lib${name}_network.a", out));
    let flags = ["-std=c11", "-O2", "-ffp-contract=off", "-ffunction-sections", "-fdata-sections", "-Isingle", "-c", "single/${name}.c", "-o"];
    done(compile().args(flags).arg(&object));
    let _ = std::fs::remove_file(&library);
    done(Command::new(&archiver).args(["crs", &library, &object]));
    println!("cargo:rustc-link-search=native={}", out);
    println!("cargo:rustc-link-lib=static=${name}_network");
    if is_native {
        println!("cargo:rustc-link-lib=m");
    } else {
        for name in ["m", "c"] {
            let path = done(compile().arg(format!("-print-file-name=lib{}.a", name)));
            println!("cargo:rustc-link-search=native={}", Path::new(&path).parent().unwrap_or(Path::new(".")).display());
            println!("cargo:rustc-link-lib=static={}", name);
        }
    }
    for name in ["single", "cargo/build.rs"] {
        println!("cargo:rerun-if-changed={}", name);
    }
    for name in ["CC", "AR", "CFLAGS"] {
        println!("cargo:rerun-if-env-changed={}", name);
    }
}
