//! Interprets a web server's FastCGI parameters by php-fpm's rules: `init_request_info` of
//! sapi/fpm/fpm/fpm_main.c, step by step and with its peculiarities, since applications and web
//! servers depend on them.
//!
//! In short: SCRIPT_FILENAME is the script, without Apache's `proxy:fcgi://…`. If there is no such
//! file, the part of the path after an existing file becomes PATH_INFO (`cgi.fix_pathinfo`).
//! Replaced values are kept as `ORIG_…`.

#[cfg(test)]
mod cases;

use maitred_php::{Admission, Foreign, Name, Params, ParamsError, Paths, Text};

/// Prefixes of SCRIPT_FILENAME from Apache's mod_proxy_fcgi and mod_proxy_balancer.
const APACHE_PREFIXES: [&[u8]; 2] = [b"proxy:fcgi://", b"proxy:balancer://"];

/// The environment of the rules.
pub trait Surroundings {
    /// `cgi.fix_pathinfo`.
    fn fix_pathinfo(&self) -> bool;
    /// `cgi.discard_path`.
    fn discard_path(&self) -> bool;
    /// Whether the whole path of Apache is decoded: only with `fastcgi.script_path_encoded = 0`.
    fn decodes_path(&self) -> bool;
    /// Whether only the part of it after the script is decoded, as in php-fpm since 8.3.19 and
    /// 8.4.5.
    fn decodes_path_info(&self) -> bool;
    /// `doc_root`.
    fn doc_root(&self) -> Option<&[u8]>;
    /// Whether a path exists.
    fn resolves(&self, params: &Params, path: Text) -> bool;
    /// Whether a path is a regular file.
    fn is_file(&self, path: &[u8]) -> bool;
}

impl Surroundings for Paths<'_> {
    fn fix_pathinfo(&self) -> bool {
        self.fix_pathinfo()
    }

    fn discard_path(&self) -> bool {
        self.discard_path()
    }

    fn decodes_path(&self) -> bool {
        self.decodes_path()
    }

    fn decodes_path_info(&self) -> bool {
        self.decodes_path_info()
    }

    fn doc_root(&self) -> Option<&[u8]> {
        self.doc_root()
    }

    fn resolves(&self, params: &Params, path: Text) -> bool {
        self.resolves(params, path)
    }

    fn is_file(&self, path: &[u8]) -> bool {
        use std::os::unix::ffi::OsStrExt;
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(path));
        path.metadata().is_ok_and(|found| found.is_file())
    }
}

/// Applies the rules. `limit_extensions` are the allowed extensions of scripts; empty: all.
///
/// # Errors
/// When the new strings do not fit.
pub fn translate(
    params: &mut Params,
    surroundings: &impl Surroundings,
    limit_extensions: &[String],
) -> Result<Foreign, ParamsError> {
    let known = KnownParams::of(params);
    let has_method = known.request_method.is_some();
    let (script, uri) = match known.script_filename.or(known.path_translated) {
        Some(path) => {
            Rules { params, surroundings, known, path, apache: false, uri: None }.apply()?
        }
        None => (None, None),
    };
    let admission = match script {
        _ if !has_method => Admission::NoMethod,
        None => Admission::NoScript,
        Some(script) if !is_allowed(params.bytes(script), limit_extensions) => Admission::Extension,
        Some(_) => Admission::Admitted,
    };
    Ok(Foreign { script, uri, admission })
}

/// `security.limit_extensions`: the name must be longer than the extension.
fn is_allowed(script: &[u8], endings: &[String]) -> bool {
    let ends = |ending: &String| script.len() > ending.len() && script.ends_with(ending.as_bytes());
    endings.is_empty() || endings.iter().any(ends)
}

/// Whether there is no `..` segment, which some web servers let through.
fn is_valid(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').all(|part| part != b"..")
}

/// The parameters that the rules read.
#[derive(Clone, Copy)]
struct KnownParams {
    request_method: Option<Text>,
    script_filename: Option<Text>,
    path_translated: Option<Text>,
    path_info: Option<Text>,
    script_name: Option<Text>,
    redirect_url: Option<Text>,
    document_root: Option<Text>,
    server_software: Option<Text>,
}

impl KnownParams {
    fn of(params: &Params) -> KnownParams {
        KnownParams {
            request_method: params.text_of(Name::RequestMethod),
            script_filename: params.text_of(Name::ScriptFilename),
            path_translated: params.text_of(Name::PathTranslated),
            path_info: params.text_of(Name::PathInfo),
            script_name: params.text_of(Name::ScriptName),
            redirect_url: params.text_of(Name::RedirectUrl),
            document_root: params.text_of(Name::DocumentRoot),
            server_software: params.text_of(Name::ServerSoftware),
        }
    }
}

/// The state of the rules. `known` has the current values; the original ones are passed along where
/// they matter.
struct Rules<'a, S> {
    params: &'a mut Params,
    surroundings: &'a S,
    known: KnownParams,
    /// The file of the script, as far as known.
    path: Text,
    /// The request comes from Apache.
    apache: bool,
    uri: Option<Text>,
}

/// The values before `cgi.fix_pathinfo` changes them.
#[derive(Clone, Copy)]
struct Originals {
    path_translated: Option<Text>,
    path_info: Option<Text>,
    script_name: Option<Text>,
    script_filename: Option<Text>,
}

impl<S: Surroundings> Rules<'_, S> {
    fn apply(mut self) -> Result<(Option<Text>, Option<Text>), ParamsError> {
        self.trim_iis()?;
        self.trim_apache()?;
        let script = if self.surroundings.fix_pathinfo() {
            self.fix_pathinfo()?
        } else {
            self.uri = self.known.path_info.or(self.known.script_name);
            match self.known.path_translated {
                Some(path) if !self.surroundings.discard_path() => Some(path),
                _ => Some(self.path),
            }
        };
        let script = script.filter(|script| is_valid(self.params.bytes(*script)));
        Ok((script, self.uri))
    }

    fn set(&mut self, name: &[u8], value: Option<Text>) -> Result<Option<Text>, ParamsError> {
        match value {
            Some(value) => self.params.set_to(name, value)?,
            None => self.params.remove(name),
        }
        Ok(value)
    }

    /// Sets `name` to the original value, if there was one.
    fn remember(&mut self, name: &[u8], value: Option<Text>) -> Result<(), ParamsError> {
        match value {
            Some(value) => self.params.set_to(name, value),
            None => Ok(()),
        }
    }

    fn bytes(&self, text: Option<Text>) -> Option<&[u8]> {
        text.map(|text| self.params.bytes(text))
    }

    /// IIS puts SCRIPT_NAME before PATH_INFO.
    fn trim_iis(&mut self) -> Result<(), ParamsError> {
        let (Some(software), Some(name), Some(info)) =
            (self.known.server_software, self.known.script_name, self.known.path_info)
        else {
            return Ok(());
        };
        if !self.params.bytes(software).starts_with(b"Microsoft-IIS")
            || !self.params.bytes(info).starts_with(self.params.bytes(name))
        {
            return Ok(());
        }
        self.remember(b"ORIG_PATH_INFO", Some(info))?;
        let rest = Some(info.after(name.len())).filter(|rest| !rest.is_empty());
        self.known.path_info = self.set(b"PATH_INFO", rest)?;
        Ok(())
    }

    /// `proxy:fcgi://localhost:9000/folder/info.php/test?foo=bar` means `/folder/info.php/test`
    /// (bugs 54152 and 62172).
    fn trim_apache(&mut self) -> Result<(), ParamsError> {
        let Some(filename) = self.known.script_filename else {
            return Ok(());
        };
        let bytes = self.params.bytes(filename);
        let begins = |prefix: &&[u8]| {
            let start = bytes.get(..prefix.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(prefix))
        };
        let Some(prefix) = APACHE_PREFIXES.iter().find(|prefix| begins(prefix)) else {
            return Ok(());
        };
        let host = &bytes[prefix.len()..];
        let slash = host.iter().position(|byte| *byte == b'/');
        self.apache = slash.is_some();
        let path = match slash {
            Some(slash) => &host[slash..],
            None => bytes,
        };
        let end = path.iter().position(|byte| *byte == b'?');
        let path = &path[..end.unwrap_or(path.len())];
        let path = match self.apache && self.surroundings.decodes_path() {
            true => percent_decoded(path),
            false => path.to_vec(),
        };
        let path = self.params.keep(&path)?;
        self.known.script_filename = self.set(b"SCRIPT_FILENAME", Some(path))?;
        self.path = path;
        Ok(())
    }

    /// `cgi.fix_pathinfo = 1`.
    fn fix_pathinfo(&mut self) -> Result<Option<Text>, ParamsError> {
        let originals = Originals {
            path_translated: self.known.path_translated,
            path_info: self.known.path_info,
            script_name: self.known.script_name,
            script_filename: self.known.script_filename,
        };
        if self.known.document_root.is_none()
            && let Some(root) = self.surroundings.doc_root()
        {
            let root = self.params.keep(root)?;
            self.known.document_root = self.set(b"DOCUMENT_ROOT", Some(root))?;
        }
        let redirected = self.follow_redirect();
        let ends_in_slash = self.params.bytes(self.path).ends_with(b"/");
        let is_there = self.path.is_empty()
            || !ends_in_slash && self.surroundings.resolves(self.params, self.path);
        if is_there {
            self.use_file(originals, redirected)?;
            return Ok(Some(self.path));
        }
        let found = self.search(originals)?;
        if !found {
            self.remember(b"ORIG_SCRIPT_FILENAME", originals.script_filename)?;
            self.params.remove(b"SCRIPT_FILENAME");
        }
        if self.uri.is_none() {
            self.use_script_name(originals, redirected)?;
        }
        Ok(found.then_some(self.path))
    }

    /// Apache's older modules set SCRIPT_FILENAME and SCRIPT_NAME to PHP's own program for requests
    /// by an Action. Returns whether this is one.
    fn follow_redirect(&mut self) -> bool {
        let (Some(translated), Some(url)) = (self.known.path_translated, self.known.redirect_url)
        else {
            return false;
        };
        if self.apache || self.params.bytes(translated) == self.params.bytes(self.path) {
            return false;
        }
        self.path = translated;
        self.known.script_name = Some(url);
        true
    }

    /// The file exists under its full name.
    fn use_file(&mut self, originals: Originals, redirected: bool) -> Result<(), ParamsError> {
        if self.bytes(originals.script_filename) != Some(self.params.bytes(self.path)) {
            self.remember(b"ORIG_SCRIPT_FILENAME", originals.script_filename)?;
            self.set(b"SCRIPT_FILENAME", Some(self.path))?;
        }
        if !self.apache && self.known.redirect_url.is_some() {
            if originals.path_info.is_some() {
                self.remember(b"ORIG_PATH_INFO", originals.path_info)?;
                self.params.remove(b"PATH_INFO");
            }
            if originals.path_translated.is_some() {
                self.remember(b"ORIG_PATH_TRANSLATED", originals.path_translated)?;
                self.params.remove(b"PATH_TRANSLATED");
            }
        }
        if redirected {
            self.remember(b"ORIG_SCRIPT_NAME", originals.script_name)?;
            self.set(b"SCRIPT_NAME", self.known.script_name)?;
        }
        self.uri = self.known.script_name;
        Ok(())
    }

    /// Searches back through the slashes for a file, and sets the variables that depend on it.
    /// Returns whether there is one.
    fn search(&mut self, originals: Originals) -> Result<bool, ParamsError> {
        let whole = self.path;
        let mut length = whole.len();
        loop {
            let bytes = &self.params.bytes(whole)[..length];
            let back = |byte: u8| bytes.iter().rposition(|one| *one == byte);
            let Some(slash) = back(b'/').or_else(|| back(b'\\')) else {
                return Ok(false);
            };
            length = slash;
            if self.surroundings.is_file(&bytes[..length]) {
                break;
            }
        }
        let script = self.params.bytes(whole)[..length].to_vec();
        self.split_path_info(originals, whole, length)?;
        if self.bytes(originals.script_filename) != Some(&script[..]) {
            self.remember(b"ORIG_SCRIPT_FILENAME", originals.script_filename)?;
            let script = self.params.keep(&script)?;
            self.set(b"SCRIPT_FILENAME", Some(script))?;
            self.path = script;
        }
        self.translate_path_info(originals, &script)?;
        Ok(true)
    }

    /// Moves the part after the script's name from SCRIPT_NAME to PATH_INFO. `whole` is the given
    /// path, of which the first `length` bytes are the script.
    fn split_path_info(
        &mut self,
        originals: Originals,
        whole: Text,
        length: usize,
    ) -> Result<(), ParamsError> {
        let rest = whole.len() - length;
        let info = if self.apache {
            let info = whole.after(length);
            let same = self.bytes(originals.path_info) == Some(self.params.bytes(info));
            (!same).then_some(info)
        } else {
            let info = self.known.path_info.filter(|info| info.len() > rest);
            info.map(|info| info.after(info.len() - rest))
        };
        let Some(mut info) = info else {
            return Ok(());
        };
        if let Some(before) = originals.path_info {
            self.cut_from_path_info(originals, before, info)?;
        } else if self.apache
            && let Some(name) = self.known.script_name
        {
            self.cut_from_script_name(originals, name, info)?;
            if self.surroundings.decodes_path_info() {
                let decoded = percent_decoded(self.params.bytes(info));
                info = self.params.keep(&decoded)?;
            }
        }
        self.known.path_info = self.set(b"PATH_INFO", Some(info))?;
        Ok(())
    }

    /// PATH_INFO contained SCRIPT_NAME, too: the part before `info`.
    fn cut_from_path_info(
        &mut self,
        originals: Originals,
        before: Text,
        info: Text,
    ) -> Result<(), ParamsError> {
        self.remember(b"ORIG_PATH_INFO", Some(before))?;
        let name = if self.apache {
            before
        } else {
            let kept = before.len() - info.len();
            let name = self.params.bytes(before)[..kept].to_vec();
            self.params.keep(&name)?
        };
        if self.bytes(originals.script_name) == Some(self.params.bytes(name)) {
            self.uri = originals.script_name;
            return Ok(());
        }
        self.remember(b"ORIG_SCRIPT_NAME", originals.script_name)?;
        self.uri = self.set(b"SCRIPT_NAME", Some(name))?;
        Ok(())
    }

    /// With ProxyPass, Apache cannot set PATH_INFO: it is still part of SCRIPT_NAME, possibly
    /// decoded, unlike in SCRIPT_FILENAME (bug 74129).
    fn cut_from_script_name(
        &mut self,
        originals: Originals,
        name: Text,
        info: Text,
    ) -> Result<(), ParamsError> {
        let (name, info) = (self.params.bytes(name), self.params.bytes(info));
        let without = |info: &[u8]| {
            let kept = name.strip_suffix(info);
            kept.filter(|kept| !kept.is_empty()).map(<[u8]>::to_vec)
        };
        let may_be_encoded = info.contains(&b'%') && !self.surroundings.decodes_path();
        let decoded = || may_be_encoded.then(|| percent_decoded(info));
        let Some(kept) = without(info).or_else(|| without(&decoded()?)) else {
            return Ok(());
        };
        self.remember(b"ORIG_SCRIPT_NAME", originals.script_name)?;
        let kept = self.params.keep(&kept)?;
        self.known.script_name = Some(kept);
        self.uri = self.set(b"SCRIPT_NAME", Some(kept))?;
        Ok(())
    }

    /// PATH_TRANSLATED is DOCUMENT_ROOT and PATH_INFO; without the former, the script's file
    /// without SCRIPT_NAME.
    fn translate_path_info(
        &mut self,
        originals: Originals,
        script: &[u8],
    ) -> Result<(), ParamsError> {
        let root = if let Some(root) = self.bytes(self.known.document_root) {
            root.strip_suffix(b"/").unwrap_or(root)
        } else if let Some(name) = self.bytes(self.known.script_name)
            && contains(script, name)
        {
            &script[..script.len() - name.len()]
        } else {
            return Ok(());
        };
        let info = self.bytes(self.known.path_info).unwrap_or_default();
        let translated = self.params.keep(&[root, info].concat())?;
        self.remember(b"ORIG_PATH_TRANSLATED", originals.path_translated)?;
        self.set(b"PATH_TRANSLATED", Some(translated))?;
        Ok(())
    }

    fn use_script_name(
        &mut self,
        originals: Originals,
        redirected: bool,
    ) -> Result<(), ParamsError> {
        let name = self.known.script_name;
        let same = originals.script_name.is_some()
            && (!redirected || self.bytes(originals.script_name) == self.bytes(name));
        if same {
            self.uri = originals.script_name;
            return Ok(());
        }
        self.remember(b"ORIG_SCRIPT_NAME", originals.script_name)?;
        self.uri = self.set(b"SCRIPT_NAME", name)?;
        Ok(())
    }
}

fn contains(whole: &[u8], part: &[u8]) -> bool {
    part.is_empty() || whole.windows(part.len()).any(|window| window == part)
}

/// As `php_raw_url_decode`.
fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let mut decoded = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let pair = (digit(text.get(at + 1)), digit(text.get(at + 2)));
        if let (b'%', (Some(high), Some(low))) = (byte, pair) {
            decoded.push((high * 16 + low) as u8);
            at += 3;
        } else {
            decoded.push(*byte);
            at += 1;
        }
    }
    decoded
}
