//! Exports the symbols that PHP's library is to find in this program before the C library's: see
//! `timers.c` and `folder.c` in the `php` crate, and `rewind.c` in `os`.

fn main() {
    println!("cargo:rerun-if-env-changed=DEP_PHP_EXPORTS");
    let exports = std::env::var("DEP_PHP_EXPORTS").unwrap_or_default();
    // `os/src/rewind.c`.
    println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol=munmap");
    for symbol in exports.split(',').filter(|symbol| !symbol.is_empty()) {
        println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol={symbol}");
    }
}
