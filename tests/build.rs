//! Lists the files of tests for `together.rs`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    // Without the feature nothing is listed, and a changed test builds nothing but itself.
    println!("cargo:rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_TOGETHER").is_none() {
        return;
    }
    println!("cargo:rerun-if-changed=tests");
    let folder = |name: &str| PathBuf::from(env::var_os(name).unwrap_or_default());
    let list = modules(&folder("CARGO_MANIFEST_DIR").join("tests"));
    if let Err(why) = fs::write(folder("OUT_DIR").join("together.rs"), list) {
        println!("cargo:error=the list of tests cannot be written: {why}");
    }
}

/// Each file as a module. Tests in a folder of their own stay a program of their own.
fn modules(folder: &Path) -> String {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some());
    let mut modules: Vec<String> = files
        .filter_map(|path| {
            let name = path.file_stem()?.to_str()?.to_owned();
            Some(format!("#[path = {path:?}]\nmod {name};\n"))
        })
        .collect();
    modules.sort();
    modules.concat()
}
