//! Finds PHP's headers and its embed library, and compiles the shim against them.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// PHP versions the shim has a header for, the newest first.
const VERSIONS: [&str; 5] = ["8.5", "8.4", "8.3", "8.2", "8.1"];

/// The shim's C files.
const SOURCES: [&str; 31] = [
    "shim.c",
    "body.c",
    "modules.c",
    "response.c",
    "variables.c",
    "version/php81.c",
    "functions.c",
    "request_ini.c",
    "request_reads.c",
    "opcache.c",
    "connections.c",
    "ending.c",
    "folder.c",
    "imports.c",
    "info.c",
    "interposed.c",
    "lasting.c",
    "library.c",
    "limits.c",
    "metrics.c",
    "opcache_lock.c",
    "patterns.c",
    "preload.c",
    "session.c",
    "shutdown_functions.c",
    "snapshot.c",
    "superglobals.c",
    "text.c",
    "timers.c",
    "trace.c",
    "worker.c",
];

/// Symbols of the C library that the shim interposes; programs must export them to libphp.
const INTERPOSED: [&str; 6] =
    ["chdir", "connect", "fchdir", "setitimer", "sigaction", "sigprocmask"];

/// Name of the library that programs are linked with, see [`stand_in`].
const STAND_IN: &str = "maitred_php_stand_in";

/// One PHP installation with an embed library.
struct PhpInstallation {
    version: String,
    includes: Vec<String>,
    /// The file of its embed library.
    object: PathBuf,
}

fn main() {
    for variable in ["PHP_CONFIG", "MAITRED_PHP_VERSION"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    println!("cargo:rerun-if-changed=shim");
    if let Err(problem) = build() {
        eprintln!("maitred-php: {problem}");
        std::process::exit(1);
    }
}

fn build() -> Result<(), String> {
    let php = find()?;
    // A build against another or an older PHP must not be reused.
    println!("cargo:rerun-if-changed={}", php.object.display());
    for include in &php.includes {
        let version = Path::new(include).join("php_version.h");
        if version.exists() {
            println!("cargo:rerun-if-changed={}", version.display());
        }
    }
    compile(&php);
    compile_extension(&php)?;
    link(&php)
}

fn find() -> Result<PhpInstallation, String> {
    let wanted = env::var("MAITRED_PHP_VERSION").ok();
    let mut problem = None;
    for program in candidates(wanted.as_deref()) {
        match inspect(&program, wanted.as_deref()) {
            Ok(Some(php)) => return Ok(php),
            Ok(None) => {}
            Err(found) => problem = problem.or(Some(found)),
        }
    }
    let version = wanted.unwrap_or_else(|| "8.2".to_owned());
    Err(problem.unwrap_or_else(|| {
        format!(
            "no php-config was found, so there are no PHP headers to build with; on Debian or \
             Ubuntu run `apt install php{version}-dev libphp{version}-embed`, elsewhere set \
             PHP_CONFIG to the php-config of a PHP built with --enable-embed=shared"
        )
    }))
}

fn candidates(wanted: Option<&str>) -> Vec<OsString> {
    if let Some(program) = env::var_os("PHP_CONFIG") {
        return vec![program];
    }
    match wanted {
        Some(version) => vec![format!("php-config{version}").into(), "php-config".into()],
        None => VERSIONS
            .iter()
            .map(|version| format!("php-config{version}").into())
            .chain(["php-config".into()])
            .collect(),
    }
}

/// `Ok(None)`: there is no such program.
fn inspect(program: &OsString, wanted: Option<&str>) -> Result<Option<PhpInstallation>, String> {
    let Some(full) = ask(program, "--version") else {
        return Ok(None);
    };
    let version = full.split('.').take(2).collect::<Vec<_>>().join(".");
    if wanted.is_some_and(|wanted| wanted != version) {
        return Ok(None);
    }
    if !VERSIONS.contains(&version.as_str()) {
        return Err(format!(
            "{} is for PHP {full}, but PHP {} to {} is needed",
            Path::new(program).display(),
            VERSIONS[VERSIONS.len() - 1],
            VERSIONS[0]
        ));
    }
    let includes = ask(program, "--includes").unwrap_or_default();
    let prefix = ask(program, "--prefix").unwrap_or_else(|| "/usr".to_owned());
    let Some(library) = library(&prefix, &version) else {
        return Err(format!(
            "the headers of PHP {full} are here, but its embed library is not; on Debian or Ubuntu \
             run `apt install libphp{version}-embed`, elsewhere build PHP with \
             --enable-embed=shared"
        ));
    };
    let includes = includes
        .split_whitespace()
        .filter_map(|flag| flag.strip_prefix("-I"))
        .map(str::to_owned)
        .collect();
    Ok(Some(PhpInstallation { version, includes, object: library }))
}

fn ask(program: &OsString, question: &str) -> Option<String> {
    let output = Command::new(program).arg(question).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn library(prefix: &str, version: &str) -> Option<PathBuf> {
    let machine = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let folders = [
        format!("{prefix}/lib"),
        format!("{prefix}/lib/{machine}-linux-gnu"),
        format!("{prefix}/lib64"),
    ];
    let names = [format!("libphp{version}.so"), "libphp.so".to_owned()];
    folders
        .iter()
        .flat_map(|folder| names.iter().map(move |name| Path::new(folder).join(name)))
        .find(|path| path.exists())
}

fn compile(php: &PhpInstallation) {
    let mut build = cc::Build::new();
    build.include("shim").define("_GNU_SOURCE", None);
    for include in &php.includes {
        build.flag(format!("-isystem{include}"));
    }
    for source in SOURCES {
        build.file(Path::new("shim").join(source));
    }
    build.flag("-std=gnu11").opt_level(2).compile("maitred_php_shim");
}

/// The functions that count, as an extension for PHP's command line. It is loaded by PHP itself, so
/// it has no sanitizer, whose library would have to be there first.
fn compile_extension(php: &PhpInstallation) -> Result<(), String> {
    let folder = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let target = folder.join("maitred_metrics.so");
    let mut compiler = cc::Build::new().get_compiler().to_command();
    for include in &php.includes {
        compiler.arg(format!("-isystem{include}"));
    }
    compiler.args(["-std=gnu11", "-O2", "-fPIC", "-shared", "-s", "-fno-sanitize=all"]);
    compiler.args(["-D_GNU_SOURCE", "-DMAITRED_METRICS_EXTENSION", "-Ishim"]);
    match compiler.arg("shim/metrics.c").arg("-o").arg(&target).status() {
        Ok(status) if status.success() => Ok(()),
        _ => Err(format!("the C compiler could not create {}", target.display())),
    }
}

/// Debian's library of every version has the soname `libphp.so`, so a program linked with it would
/// load whichever version has that name. Programs are linked with a stub library instead that has
/// the same symbols and the file name of the right version as its soname. Its own file has another
/// name: cargo puts this folder into `LD_LIBRARY_PATH` of programs that it runs.
fn stand_in(library: &Path) -> Result<PathBuf, String> {
    let name = library.file_name().and_then(|name| name.to_str()).unwrap_or("libphp.so");
    let folder = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let source = folder.join("stand_in.s");
    let target = folder.join(format!("lib{STAND_IN}.so"));
    fs::write(&source, symbols(library)?)
        .map_err(|error| format!("{}: {error}", source.display()))?;
    let mut compiler = cc::Build::new().get_compiler().to_command();
    compiler.args(["-shared", "-nostdlib"]).arg(format!("-Wl,-soname,{name}"));
    let status = compiler.arg("-o").arg(&target).arg(&source).status();
    match status {
        Ok(status) if status.success() => Ok(folder),
        _ => Err(format!("the C compiler could not create {}", target.display())),
    }
}

/// Assembly that defines what `library` defines.
fn symbols(library: &Path) -> Result<String, String> {
    let mut command = Command::new("nm");
    command.args(["--dynamic", "--defined-only", "--format=posix"]).arg(library);
    let output = command.output().map_err(|error| {
        format!("nm could not be run ({error}); on Debian or Ubuntu run `apt install binutils`")
    })?;
    let mut assembly = String::from(".section .note.GNU-stack,\"\",%progbits\n");
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let mut fields = line.split(' ');
        let (Some(name), Some(kind)) = (fields.next(), fields.next()) else {
            continue;
        };
        let size = fields.nth(1).filter(|size| !size.is_empty()).unwrap_or("0");
        let (section, kind) = match kind {
            "T" | "t" | "W" | "i" => (".text", "%function"),
            _ => (".data", "%object"),
        };
        assembly.push_str(&format!(
            "{section}\n.globl {name}\n.type {name},{kind}\n.size {name},0x{size}\n\
             {name}: .byte 0\n"
        ));
    }
    Ok(assembly)
}

/// `8.2` of `8.2.35`.
fn branch(version: &str) -> String {
    version.splitn(3, '.').take(2).collect::<Vec<_>>().join(".")
}

fn link(php: &PhpInstallation) -> Result<(), String> {
    let folder = stand_in(&php.object)?;
    println!("cargo:rustc-link-search=native={}", folder.display());
    println!("cargo:rustc-link-lib=dylib={STAND_IN}");
    // For the build scripts of programs: DEP_PHP_VERSION, DEP_PHP_EXPORTS.
    println!("cargo:version={}", php.version);
    println!("cargo:rustc-env=MAITRED_PHP_BRANCH={}", branch(&php.version));
    println!("cargo:exports={}", INTERPOSED.join(","));
    for symbol in INTERPOSED {
        println!("cargo:rustc-link-arg-examples=-Wl,--export-dynamic-symbol={symbol}");
    }
    Ok(())
}
