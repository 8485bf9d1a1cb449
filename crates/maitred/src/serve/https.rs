//! HTTPS for a folder during development, with a certificate of the user's own authority.

use std::net::SocketAddr;

use maitred_config::Config;
use maitred_tls::permits;

use crate::exit_code::complain;
use crate::trust::authority_folder::{AuthorityFolder, Found};
use crate::trust::is_trusted;

/// Why a configuration file has no use for `--https`.
pub const FOR_FOLDERS: &str = "--https is for a folder during development; for the sites of a \
                               configuration file write [tls] with `certificates`, or with `acme` \
                               to have them issued";

/// What to do when browsers do not trust the authority yet.
const NEXT_STEP: &str = "browsers do not trust this certificate yet; run `maitred trust` once";

/// Makes the authority if there is none. Returns what the user has to do next, if anything.
///
/// # Errors
/// One sentence, if its files cannot be used or written.
pub fn prepare() -> Result<Option<&'static str>, String> {
    let folder = AuthorityFolder::of_user();
    let Found { authority, is_new } = folder.read_or_make()?;
    if is_new {
        let path = folder.path().display();
        complain(&format!(
            "a certificate authority of your own was made in {path}; it is only good for \
             localhost, .test and private addresses"
        ));
    }
    let is_trusted = !is_new && is_trusted(&folder, &authority);
    Ok((!is_trusted).then_some(NEXT_STEP))
}

/// This configuration of a folder with HTTPS in place of HTTP, and a new certificate.
///
/// # Errors
/// One sentence: the authority may not issue a certificate for an address, a certificate is
/// configured, or the files of the authority cannot be used or written.
pub fn secured(config: Config) -> Result<Config, String> {
    if config.tls.is_some() {
        return Err(
            "--https and MAITRED_TLS variables exclude each other; leave one out".to_owned()
        );
    }
    if let Some(public) = config.listen.iter().find(|address| is_public(address)) {
        return Err(format!(
            "--https is not for {public}, an address of the web; listen on a loopback or private \
             address, or write [tls] with `certificates` or `acme` in a configuration file"
        ));
    }
    let folder = AuthorityFolder::of_user();
    let authority = folder.read_or_make()?.authority;
    let certificate = folder.issue(&authority, &config.listen)?;
    Ok(config.with_https(certificate))
}

fn is_public(address: &SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    !ip.is_unspecified() && !permits(ip)
}
