//! Links libtutti_frameworks.so and libtutti.so of TUTTI_LIB_DIR, else of the folder that
//! pkg-config knows, else of the linker's own.
use std::{env, process::Command};

fn pkg_config() -> Option<String> {
    let found = Command::new("pkg-config").args(["--variable=libdir", "tutti"]).output().ok()?;
    let folder = String::from_utf8(found.stdout).ok()?.trim().to_string();
    Some(folder).filter(|folder| !folder.is_empty())
}

fn main() {
    println!("cargo:rerun-if-env-changed=TUTTI_LIB_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    if let Some(folder) = env::var("TUTTI_LIB_DIR").ok().or_else(pkg_config) {
        println!("cargo:rustc-link-search=native={folder}");
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}"); // For this crate's own programs.
        println!("cargo:lib_dir={folder}"); // For build.rs of others: DEP_TUTTI_FRAMEWORKS_LIB_DIR.
    }
    println!("cargo:rustc-link-lib=dylib=tutti_frameworks");
    println!("cargo:rustc-link-lib=dylib=tutti");
}
