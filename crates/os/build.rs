//! Compiles what Rust cannot express: functions that return in two processes (`orphan.c`) and more
//! than once (`rewind.c`).

fn main() {
    let sources = ["src/orphan.c", "src/rewind.c", "src/rewind_kept.c", "src/rewind_look.c"];
    for source in sources.iter().chain(&["src/rewind.h"]) {
        println!("cargo:rerun-if-changed={source}");
    }
    cc::Build::new().files(sources).flag("-std=gnu11").opt_level(2).compile("maitred_os_orphan");
}
