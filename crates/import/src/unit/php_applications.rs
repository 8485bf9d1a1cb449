//! Unit's PHP applications as pools.

use serde_json::Value;

use super::{UnitConfig, names};
use crate::file_draft::{FileDraft, Placed, PoolDraft};
use crate::pool_names::pool_name;
use crate::report::{ImportReport, SourceLine};
use crate::toml_text;

/// Where an application looks for scripts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PhpTarget {
    /// The name of its pool.
    pub pool: String,
    /// The folder of scripts.
    pub root: String,
    /// The script that serves all requests.
    pub script: Option<String>,
    /// The index of folders.
    pub index: String,
}

/// The target of a `pass` such as `applications/a/direct`, whose pool is added to the file.
///
/// # Errors
/// Why there is none, as the end of a sentence.
pub(super) fn target(
    config: &UnitConfig,
    pass: &str,
    file: &mut FileDraft,
    report: &mut ImportReport,
) -> Result<PhpTarget, String> {
    let mut parts = pass.split('/').skip(1);
    let (name, target) = (parts.next().unwrap_or_default(), parts.next());
    let pointer = format!("/applications/{name}");
    let application = config.get(&pointer).ok_or(format!("there is no application `{name}`"))?;
    let kind = application.get("type").and_then(Value::as_str).unwrap_or_default();
    if kind != "php" && !kind.starts_with("php ") {
        return Err(format!("`{name}` is no PHP application"));
    }
    let pool = pool(config, name, file, report);
    let holder = match target {
        Some(target) => application
            .pointer(&format!("/targets/{target}"))
            .ok_or(format!("`{name}` has no target `{target}`"))?,
        None => application,
    };
    let text = |name: &str| holder.get(name).and_then(Value::as_str);
    let root = text("root").ok_or(format!("`{pass}` has no `root`"))?;
    Ok(PhpTarget {
        pool,
        root: root.trim_end_matches('/').to_owned(),
        script: text("script").map(str::to_owned),
        index: text("index").unwrap_or("index.php").to_owned(),
    })
}

/// Whether a `pass` leads to one script of an application.
pub(super) fn has_script(config: &UnitConfig, pass: &str) -> bool {
    let mut parts = pass.split('/').skip(1);
    let (name, target) = (parts.next().unwrap_or_default(), parts.next());
    let target = target.map(|target| format!("/targets/{target}")).unwrap_or_default();
    let is_application = pass.starts_with("applications/");
    is_application && config.get(&format!("/applications/{name}{target}/script")).is_some()
}

fn pool(
    config: &UnitConfig,
    name: &str,
    file: &mut FileDraft,
    report: &mut ImportReport,
) -> String {
    if let Some(known) = file.pools.iter().find(|pool| pool.origin == name) {
        return known.name.clone();
    }
    let taken: Vec<&str> = file.pools.iter().map(|pool| pool.name.as_str()).collect();
    let own = pool_name(name, &taken);
    let pointer = format!("/applications/{name}");
    let from = config.place(&pointer).to_string();
    let origin = name.to_owned();
    let mut pool = PoolDraft { name: own.clone(), origin, from, ..PoolDraft::default() };
    if config.get(&format!("{pointer}/processes")).is_none() {
        let place = config.place(&pointer);
        pool.settings.set("pm", Placed::because("\"static\"".to_owned(), &place, "Unit's default"));
        pool.settings
            .set("max_children", Placed::because("1".to_owned(), &place, "Unit's default"));
    }
    if config.get(&format!("{pointer}/user")).is_none() {
        let why = "Unit runs it as the user of `unitd --user`, and PHP runs here as the owner of \
                   the document root, who may be able to change the code: set `user` of the pool";
        report.changed(&config.place(&pointer), "user", why);
    }
    for entry in names(config, &pointer) {
        let at = format!("{pointer}/{entry}");
        let Some(value) = config.get(&at) else { continue };
        let member = Member { place: config.place(&at), name: &entry, value };
        setting(&member, &mut pool, report);
    }
    file.pools.push(pool);
    own
}

/// A member of an application.
struct Member<'m> {
    place: SourceLine,
    name: &'m str,
    value: &'m Value,
}

fn setting(member: &Member<'_>, pool: &mut PoolDraft, report: &mut ImportReport) {
    let Member { place, name, value } = member;
    let text = value.as_str().unwrap_or_default();
    let set = |pool: &mut PoolDraft, name: &str, toml: String| {
        pool.settings.set(name, Placed::new(toml, place));
    };
    match *name {
        "type" => {
            let version = text.trim_start_matches("php").trim();
            let parts: Vec<&str> = version.split('.').collect();
            if let [major, minor, ..] = parts.as_slice() {
                set(pool, "php", toml_text::string(&format!("{major}.{minor}")));
            }
        }
        "user" | "group" => set(pool, name, toml_text::string(text)),
        "working_directory" => set(pool, "chdir", toml_text::string(text)),
        "processes" => processes(value, pool, place),
        "limits" => {
            let seconds = value.get("timeout").and_then(Value::as_u64);
            if let Some(seconds) = seconds.filter(|seconds| *seconds > 0) {
                set(pool, "request_terminate_timeout", toml_text::string(&format!("{seconds}s")));
            }
            if let Some(requests) = value.get("requests").and_then(Value::as_u64) {
                set(pool, "max_requests", requests.to_string());
            }
        }
        "environment" => entries(value, "env", pool, place),
        "options" => {
            if let Some(file) = value.get("file").and_then(Value::as_str) {
                set(pool, "php_ini", toml_text::string(file));
            }
            value
                .get("admin")
                .into_iter()
                .for_each(|all| entries(all, "php_admin_value", pool, place));
            value.get("user").into_iter().for_each(|all| entries(all, "php_value", pool, place));
        }
        "root" | "script" | "index" | "targets" => {}
        "stdout" | "stderr" => {
            return report.left_out(place, name, "messages of scripts are in `error_log`");
        }
        "isolation" => {
            let has_root = value.get("rootfs").is_some();
            let why = "set `chroot` of the pool; namespaces and control groups are those of the \
                       service";
            return match has_root {
                true => report.access_left_out(place, name, why),
                false => report.left_out(place, name, why),
            };
        }
        _ => return report.access_left_out(place, name, "it is unknown; see what it does"),
    }
    report.kept(place, name);
}

fn processes(value: &Value, pool: &mut PoolDraft, place: &SourceLine) {
    let mut set = |name: &str, toml: String| pool.settings.set(name, Placed::new(toml, place));
    if let Some(number) = value.as_u64() {
        set("pm", "\"static\"".to_owned());
        return set("max_children", number.max(1).to_string());
    }
    let number = |name: &str| value.get(name).and_then(Value::as_u64);
    let most = number("max").unwrap_or(1).max(1);
    let spare = number("spare").unwrap_or(0).min(most);
    set("max_children", most.to_string());
    if let Some(seconds) = number("idle_timeout").filter(|seconds| *seconds > 0) {
        set("process_idle_timeout", toml_text::string(&format!("{seconds}s")));
    }
    if spare == 0 {
        return set("pm", "\"ondemand\"".to_owned());
    }
    set("pm", "\"dynamic\"".to_owned());
    for name in ["start_servers", "min_spare_servers", "max_spare_servers"] {
        set(name, spare.to_string());
    }
}

fn entries(value: &Value, table: &str, pool: &mut PoolDraft, place: &SourceLine) {
    for (name, value) in value.as_object().into_iter().flatten() {
        let text = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        pool.settings.entry(table, name, Placed::new(toml_text::string(&text), place));
    }
}
