//! Compiles what Rust cannot express: a function that returns in two processes (`orphan.c`).

fn main() {
    println!("cargo:rerun-if-changed=src/orphan.c");
    cc::Build::new()
        .file("src/orphan.c")
        .flag("-std=gnu11")
        .opt_level(2)
        .compile("maitred_os_orphan");
}
