//! Makes a WordPress document root with a database of its own, prints `root PATH` and `socket
//! PATH`, and keeps both until its standard input closes. The site is not installed yet: run
//! the web installer through a server, or pass `--install ADDRESS` once it serves.

use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::process::ExitCode;

use maitred_tests::picture;
use maitred_tests::wordpress::{Files, WordPress};

const USAGE: &str = "usage: wordpress-site              make a site, hold it until stdin closes
       wordpress-site --install ADDRESS   install the site that ADDRESS (127.0.0.1:8080) serves";

fn hold() -> std::io::Result<()> {
    let files = Files::prepare();
    let mut out = std::io::stdout();
    writeln!(out, "root {}\nsocket {}", files.root().display(), files.socket().display())?;
    out.flush()?;
    for line in std::io::stdin().lock().lines() {
        line?;
    }
    Ok(())
}

fn install(address: SocketAddr) {
    let mut site = WordPress::install(address);
    let (post, _) = site.publish("A first evening", "<p>The table is laid.</p>");
    site.upload("table.png", &picture::png(640, 480));
    site.choose_pretty_permalinks();
    let comment = site.comment(post, "A guest", "Thank you for the soup.");
    site.approve(comment);
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => match hold() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("wordpress-site: cannot write to standard output: {error}");
                ExitCode::FAILURE
            }
        },
        ["--install", address] if address.parse::<SocketAddr>().is_ok() => {
            install(address.parse().expect("it was parsed a moment ago"));
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}
