//! Directories with files that scripts may send (`X-Accel-Redirect`, `X-Sendfile`).

use std::borrow::Cow;
use std::sync::{Arc, Mutex};

use maitred_config::SendfileRoot;
use maitred_rules::path::{clean_path, encode_path};
use percent_encoding::percent_decode;

use crate::backend::script_headers::Named;
use crate::site::files::StaticFile;
use crate::site::resolver::{Refused, Resolver, Route, SiteFiles};
use crate::site::with;

/// The directories with files that a site's scripts may send.
#[derive(Default)]
pub struct SendfileRoots(Vec<OpenRoot>);

pub(crate) struct OpenRoot {
    /// The prefix of its paths, without the trailing slash.
    prefix: String,
    resolver: Mutex<Resolver>,
}

/// Why a file that a script names is not sent.
pub(crate) struct NotSent {
    pub(crate) status: u16,
    pub(crate) why: Cow<'static, str>,
}

impl From<Refused> for NotSent {
    fn from(refused: Refused) -> NotSent {
        NotSent {
            // An invalid path is the script's error, not the client's.
            status: if refused.status == 400 { 404 } else { refused.status },
            why: refused.why.into(),
        }
    }
}

pub(crate) fn not_found(why: impl Into<Cow<'static, str>>) -> NotSent {
    let why = why.into();
    NotSent { status: 404, why }
}

impl SendfileRoots {
    /// Opens each directory; `files` has the settings common to all directories of a site.
    pub fn open(
        roots: &[SendfileRoot],
        files: &SiteFiles,
        open: impl Fn(SiteFiles) -> Mutex<Resolver>,
    ) -> SendfileRoots {
        let opened = roots.iter().map(|root| {
            let prefix = root.path.trim_end_matches('/').to_owned();
            let files = SiteFiles {
                root: root.folder.clone(),
                index: Vec::new(),
                front_controller: None,
                prefix: prefix.clone(),
                // No script is run there.
                chroot: None,
                other_chroots: Vec::new(),
                ..files.clone()
            };
            let resolver = open(files);
            // An upload may be source, and the script decides which clients get it.
            with(&resolver, Resolver::send_any_content);
            OpenRoot { prefix, resolver }
        });
        SendfileRoots(opened.collect())
    }

    /// Whether there is no directory.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The resolvers of the directories.
    pub(crate) fn resolvers(&self) -> impl Iterator<Item = &Mutex<Resolver>> {
        self.0.iter().map(|root| &root.resolver)
    }

    /// As [`Resolver::close_idle`].
    pub(crate) fn close_idle(&self) {
        for root in &self.0 {
            with(&root.resolver, Resolver::close_idle);
        }
    }

    pub(crate) fn find(&self, named: Named<'_>) -> Result<Arc<StaticFile>, NotSent> {
        if self.is_empty() {
            return Err(not_found(
                "the site has no sendfile_roots; name the file's folder there, such as \
                 sendfile_roots = { \"/protected/\" = \"/srv/files\" }",
            ));
        }
        let (root, path) = match named {
            Named::Path(path) => self.of_path(path)?,
            Named::File(file) => self.of_file(file)?,
        };
        match with(&root.resolver, |resolver| resolver.resolve(&path, None)) {
            Route::File(entry) => Ok(entry),
            Route::Refused(refused) => Err(refused.into()),
            Route::Script(_) => Err(not_found("it is a script, and PHP source is never sent")),
            Route::RedirectSlash(_) => Err(not_found("it is a folder")),
        }
    }

    fn of_path(&self, path: &[u8]) -> Result<(&OpenRoot, String), NotSent> {
        let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
        let decoded: Vec<u8> = percent_decode(path).collect();
        let encoded = encode_path(&decoded);
        let clean = clean_path(&encoded)?;
        let below = |root: &OpenRoot| {
            let rest = clean.as_bytes().strip_prefix(root.prefix.as_bytes());
            rest.filter(|rest| rest.starts_with(b"/")).map(encode_path)
        };
        self.longest(below).ok_or_else(|| {
            let prefixes = self.0.iter().map(|root| format!("{}/", root.prefix));
            let prefixes = prefixes.collect::<Vec<_>>().join(", ");
            not_found(format!(
                "it begins with none of the paths of the site's sendfile_roots ({prefixes})"
            ))
        })
    }

    fn of_file(&self, file: &[u8]) -> Result<(&OpenRoot, String), NotSent> {
        let below = |root: &OpenRoot| {
            let below = |resolver: &mut Resolver| {
                // A root that cannot be opened has its former name, and refuses the file later.
                let _ = resolver.follow_link();
                resolver.below(file).map(encode_path)
            };
            with(&root.resolver, below)
        };
        self.longest(below).ok_or_else(|| {
            let folder =
                |root: &OpenRoot| with(&root.resolver, |r| r.folder().display().to_string());
            let folders: Vec<String> = self.0.iter().map(folder).collect();
            let folders = folders.join(", ");
            not_found(format!(
                "it lies in none of the folders of the site's sendfile_roots ({folders}); name its \
                 folder there if it is to be sent"
            ))
        })
    }

    /// The deepest of the roots that contain the file, and the path in it.
    fn longest(&self, below: impl Fn(&OpenRoot) -> Option<String>) -> Option<(&OpenRoot, String)> {
        let found = self.0.iter();
        let found = found.filter_map(|root| below(root).map(|rest| (root, rest)));
        found.min_by_key(|(_, rest)| rest.len())
    }
}

impl Resolver {
    /// The path in the folder of a file with this absolute name for scripts, if it is in there.
    fn below<'p>(&self, name: &'p [u8]) -> Option<&'p [u8]> {
        let roots = self.names().into_iter().flatten();
        let mut rests = roots.map(|root| name.strip_prefix(root));
        rests.find_map(|rest| rest.filter(|rest| rest.starts_with(b"/")))
    }
}
