//! Compiles the BPF programs. Without clang the crate still builds, and reports at run time that it
//! cannot bypass anything.

use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "src/bypass.bpf.c";

fn main() {
    println!("cargo:rerun-if-changed={SOURCE}");
    println!("cargo:rerun-if-changed=build.rs");
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let object = folder.join("bypass.bpf.o");
    let machine = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    // Debian keeps the kernel's headers in a folder per architecture.
    let headers = format!("-I/usr/include/{machine}-linux-gnu");
    let compiled = Command::new("clang")
        .args(["-target", "bpf", "-O2", "-g", "-Wall", "-Werror", &headers, "-c", SOURCE, "-o"])
        .arg(&object)
        .status();
    if !compiled.as_ref().is_ok_and(std::process::ExitStatus::success) {
        println!("cargo:warning=clang did not compile {SOURCE}: no bypass ({compiled:?})");
        std::fs::write(&object, []).expect("OUT_DIR can be written to");
    }
}
