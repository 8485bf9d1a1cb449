//! `maitred trust`: the authority of `maitred serve --https` in the stores of this machine.

pub mod authority_folder;
mod limited_command;
mod stores;

use std::fs;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use maitred_os::users;
use maitred_tls::LocalAuthority;

use crate::exit_code::{EXIT_FAILURE, EXIT_SUCCESS, complain, fail, print_line};
use authority_folder::{AuthorityFolder, home};
use stores::{Change, Store, TrustedCertificate};

/// All is done that this user may do, and the rest is for root.
const EXIT_FOR_ROOT: u8 = 3;

/// The user who has started `sudo` (sudo(8)).
const SUDO_USER: &str = "SUDO_USER";

/// Arguments of `maitred trust`.
#[derive(Debug, Args)]
pub struct Trust {
    /// Remove the authority from the stores
    #[arg(long, conflicts_with = "export")]
    remove: bool,
    /// Print the authority's certificate (PEM) for other machines, and change nothing
    #[arg(long)]
    export: bool,
    /// Only this store: the system's or the browsers' [default: both]
    #[arg(long, value_name = "STORE")]
    store: Option<StoreKind>,
}

/// A kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StoreKind {
    /// That of curl, PHP and other programs
    System,
    /// Those of Chromium, Chrome and Firefox
    Browsers,
}

/// Adds the authority to the stores, removes it from them, or prints its certificate.
pub fn trust(asked: &Trust) -> ExitCode {
    let folder = AuthorityFolder::of_user();
    let authority = match asked.remove {
        true => folder.read(),
        false => folder.read_or_make().map(|found| Some(found.authority)),
    };
    let authority = match authority {
        Ok(authority) => authority,
        // What the stores of browsers have is found without it.
        Err(why) if asked.remove => {
            complain(&why);
            None
        }
        Err(why) => return fail(&why),
    };
    if asked.export {
        return export(&folder);
    }
    if let Some(user) = sudo_user() {
        complain(&format!(
            "this is the authority of root; that of {user} is trusted by `maitred trust` without \
             sudo"
        ));
    }
    change(asked, &folder, authority.as_ref())
}

/// Whether any store has this authority. Programs are only run for this if a browser has a store.
pub fn is_trusted(folder: &AuthorityFolder, authority: &LocalAuthority) -> bool {
    let (name, file) = (authority.name(), folder.certificate());
    let certificate = TrustedCertificate { name: &name, id: authority.id(), file: &file };
    all(None).iter().any(|store| store.trusts(certificate))
}

fn export(folder: &AuthorityFolder) -> ExitCode {
    let file = folder.certificate();
    match fs::read_to_string(&file) {
        Ok(text) => print_line(text.trim_end()),
        Err(why) => return fail(&format!("{} cannot be read: {why}", file.display())),
    }
    ExitCode::from(EXIT_SUCCESS)
}

/// The stores of a kind, or of both.
fn all(kind: Option<StoreKind>) -> Vec<Store> {
    let is_wanted = |wanted: StoreKind| kind.is_none_or(|kind| kind == wanted);
    let system = is_wanted(StoreKind::System).then(stores::system).flatten();
    let browsers = is_wanted(StoreKind::Browsers).then(|| stores::browsers(&home()));
    system.into_iter().chain(browsers.into_iter().flatten()).collect()
}

fn change(asked: &Trust, folder: &AuthorityFolder, authority: Option<&LocalAuthority>) -> ExitCode {
    let all = all(asked.store);
    if all.is_empty() {
        if asked.remove {
            return ExitCode::from(EXIT_SUCCESS);
        }
        return fail(&format!(
            "no store of authorities was found here: neither update-ca-certificates nor a profile \
             of Chromium or Firefox; add {} to yours by hand",
            folder.certificate().display()
        ));
    }
    let (name, file) = (authority.map(LocalAuthority::name), folder.certificate());
    let mut code = EXIT_SUCCESS;
    for store in &all {
        let changed = match (asked.remove, authority, &name) {
            (false, Some(authority), Some(name)) => {
                store.add(TrustedCertificate { name, id: authority.id(), file: &file })
            }
            _ => store.remove(authority.map(LocalAuthority::id)),
        };
        let title = store.title();
        match changed {
            Ok(Change::Done) if asked.remove => print_line(&format!("{title}: removed")),
            Ok(Change::Done) => print_line(&format!("{title}: added")),
            Ok(Change::ForRoot(command)) => {
                print_line(&format!("{title}: needs root; run\n  {command}"));
                if code == EXIT_SUCCESS {
                    code = EXIT_FOR_ROOT;
                }
            }
            Err(why) => {
                complain(&format!("{title}: {why}"));
                code = EXIT_FAILURE;
            }
        }
    }
    if !asked.remove && all.iter().any(|store| matches!(store, Store::Browser(_))) {
        print_line("browsers that run see it after a restart");
    }
    ExitCode::from(code)
}

/// The user behind `sudo`, if this is root.
fn sudo_user() -> Option<String> {
    let user = std::env::var(SUDO_USER).ok()?;
    (users::is_root() && user != "root").then_some(user)
}
