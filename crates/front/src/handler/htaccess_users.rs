//! Users and groups of `.htaccess` files: `AuthUserFile` and `AuthGroupFile`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use maitred_htaccess::request::Request;
use maitred_htaccess::user_groups::{Groups, KnownUser};

use crate::handler::context::RequestContext;
use crate::handler::respond::TextResponse;
use crate::http::headers::basic_user;
use crate::services::Thread;
use crate::site::auth::{Outcome, UsersFile, has_password};
use crate::site::checked_files::TakesTooLong;
use crate::site::users_files::may_name;

/// The response body without users or groups.
const UNAVAILABLE: &str = "Authentication is unavailable.";

/// Checks name and password of the client by the `AuthUserFile`.
///
/// # Errors
/// The response to a client that is no user.
pub async fn authenticate(
    context: &RequestContext<'_>,
    thread: &Thread,
    request: &Request,
) -> Result<KnownUser, TextResponse> {
    if !has_password(context.head.header("authorization")) {
        return Err(challenge(request));
    }
    let Some(users) = file(context, thread, NamedFile::of_users(request)) else {
        return Err(TextResponse::new(500, UNAVAILABLE));
    };
    let users = UsersFile::OfHtaccess { path: &users, root: &context.site.settings.root };
    let client = context.target.peer.ip();
    let (porter, tenant) = (&thread.shared.porter, &context.site.tenant);
    match porter.admit(context.head, users, client, tenant).await {
        Outcome::Granted => Ok(KnownUser {
            file: request.conf.authn.users.clone(),
            group_file: request.conf.authn.groups.clone(),
            name: basic_user(context.head.header("authorization")),
            groups: groups(context, thread, request).await?,
        }),
        Outcome::Unknown => Err(challenge(request)),
        Outcome::Busy => {
            let response = TextResponse::new(503, "Too many passwords are being checked.");
            Err(response.with("Retry-After", "1"))
        }
        Outcome::Late => Err(TextResponse::new(503, UNAVAILABLE)),
        Outcome::NoUsers => Err(TextResponse::new(500, UNAVAILABLE)),
    }
}

/// The groups of the `AuthGroupFile`; without a usable one there are none.
///
/// # Errors
/// When it takes too long to read: `Require not group` would let everybody in.
async fn groups(
    context: &RequestContext<'_>,
    thread: &Thread,
    request: &Request,
) -> Result<Arc<Groups>, TextResponse> {
    if request.conf.authn.groups.is_none() {
        return Ok(Arc::default());
    }
    let Some(groups) = file(context, thread, NamedFile::of_groups(request)) else {
        return Ok(Arc::default());
    };
    let (root, tenant) = (&context.site.settings.root, &context.site.tenant);
    let groups = thread.shared.porter.groups(&groups, root, tenant).await;
    let late = |TakesTooLong| TextResponse::new(503, UNAVAILABLE);
    Ok(groups.map_err(late)?.unwrap_or_default())
}

/// The response that asks for a name and a password.
pub fn challenge(request: &Request) -> TextResponse {
    let realm = request.conf.authn.realm.clone().unwrap_or_default();
    let realm = String::from_utf8_lossy(&realm).replace(['"', '\\'], "");
    TextResponse::new(401, "A name and a password are needed.")
        .with("WWW-Authenticate", &format!("Basic realm=\"{realm}\""))
}

/// A file that a directive names.
struct NamedFile<'r> {
    directive: &'static str,
    path: Option<&'r Vec<u8>>,
}

impl NamedFile<'_> {
    fn of_users(request: &Request) -> NamedFile<'_> {
        NamedFile { directive: "AuthUserFile", path: request.conf.authn.users.as_ref() }
    }

    fn of_groups(request: &Request) -> NamedFile<'_> {
        NamedFile { directive: "AuthGroupFile", path: request.conf.authn.groups.as_ref() }
    }
}

/// The path of a file that the site may use: a file of another site is none of this one's.
fn file(context: &RequestContext<'_>, thread: &Thread, named: NamedFile<'_>) -> Option<PathBuf> {
    let settings = &context.site.settings;
    let root = &settings.root;
    let failed = |why: String| thread.shared.troubles.htaccess_failed(root, &why);
    let Some(path) = named.path else {
        failed(format!("authentication needs an {}", named.directive));
        return None;
    };
    let path = PathBuf::from(OsString::from_vec(path.clone()));
    let real_root = context.site.real_root();
    if may_name([root, &real_root], &settings.rules.htaccess_users, &path) {
        return Some(path);
    }
    failed(format!(
        "{} {} is neither in the document root nor in a folder of `htaccess_users`: add it there, \
         or move the file",
        named.directive,
        path.display()
    ));
    None
}
