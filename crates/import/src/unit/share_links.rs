//! Links and file systems below a `share` that Unit does not follow.

use serde_json::Value;

use super::UnitConfig;
use super::first_steps::share_texts;
use super::json_places::pointer_part;
use crate::FileReader;
use crate::report::ImportReport;

/// What is looked at below the folders of each `share`.
pub(super) struct ShareLinks<'s> {
    /// The configuration.
    pub config: &'s UnitConfig,
    /// The files.
    pub files: &'s dyn FileReader,
    /// The report.
    pub report: &'s mut ImportReport,
}

impl ShareLinks<'_> {
    /// Reports `chroot`, `follow_symlinks` and `traverse_mounts` of each `share`.
    pub(super) fn report(&mut self) {
        let mut actions = Vec::new();
        if let Some(routes) = self.config.get("/routes") {
            with_share(routes, "/routes", &mut actions);
        }
        for action in &actions {
            self.chroot(action);
            self.follow_symlinks(action);
            self.traverse_mounts(action);
        }
    }

    fn chroot(&mut self, action: &str) {
        if self.config.get(&format!("{action}/chroot")).is_some() {
            self.links(action, "chroot");
        }
    }

    fn follow_symlinks(&mut self, action: &str) {
        match self.config.get(&format!("{action}/follow_symlinks")) {
            None => {}
            Some(Value::Bool(false)) => self.links(action, "follow_symlinks"),
            Some(_) => {
                let why = "links are followed only to files of the link's owner";
                self.report.changed(&self.config.place(action), "follow_symlinks", why);
            }
        }
    }

    fn traverse_mounts(&mut self, action: &str) {
        let place = self.config.place(action);
        match self.config.get(&format!("{action}/traverse_mounts")) {
            None => {}
            Some(Value::Bool(false)) => {
                let why = "files of a file system that is mounted below the folder are sent here: \
                           deny their paths";
                self.report.access_left_out(&place, "traverse_mounts", why);
            }
            Some(_) => self.report.kept(&place, "traverse_mounts"),
        }
    }

    /// Links that Unit does not follow are followed here.
    fn links(&mut self, action: &str, name: &str) {
        let place = self.config.place(action);
        let share = self.config.get(&format!("{action}/share"));
        for share in share.and_then(share_texts).unwrap_or_default() {
            let folder = share.strip_suffix("$uri").unwrap_or(share);
            let has_links = match folder.contains('$') {
                true => None,
                false => self.files.has_links(folder),
            };
            match has_links {
                Some(false) => {
                    let why = "links are followed here; there are none now";
                    self.report.changed(&place, name, why);
                }
                Some(true) => {
                    let why = format!(
                        "links are followed here, and there are some below {folder}: remove them, \
                         or deny their paths"
                    );
                    self.report.access_left_out(&place, name, &why);
                }
                None => {
                    let why = format!(
                        "links are followed here, and the folders of {folder} are not fixed, too \
                         many, too deep, or not readable: remove links below it, or deny their \
                         paths"
                    );
                    self.report.access_left_out(&place, name, &why);
                }
            }
        }
    }
}

/// The pointers of all actions with a `share`.
fn with_share(value: &Value, pointer: &str, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                with_share(item, &format!("{pointer}/{index}"), found);
            }
        }
        Value::Object(members) => {
            if members.contains_key("share") {
                found.push(pointer.to_owned());
            }
            for (name, inner) in members {
                with_share(inner, &format!("{pointer}/{}", pointer_part(name)), found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::import;

    /// A configuration, and whether there are links below its folders.
    struct LinkedConf {
        text: String,
        has_links: Option<bool>,
    }

    impl FileReader for LinkedConf {
        fn read(&self, _path: &str) -> Result<String, String> {
            Ok(self.text.clone())
        }

        fn glob(&self, _pattern: &str) -> Vec<String> {
            Vec::new()
        }

        fn has_links(&self, _folder: &str) -> Option<bool> {
            self.has_links
        }

        fn resolved(&self, _path: &str) -> Option<String> {
            None
        }
    }

    /// Whether nothing about access is left out of a `share` with these settings.
    fn keeps_access(settings: &str, has_links: Option<bool>) -> bool {
        let text = format!(
            r#"{{"listeners": {{"*:80": {{"pass": "routes/a~%2Fb"}}}}, "routes": {{"a~/b": [
            {{"match": {{"uri": "/no/*"}}, "action": {{"return": 403}}}},
            {{"action": {{"share": "/srv/a$uri"{settings}}}}}]}}}}"#
        );
        let imported = import(&LinkedConf { text, has_links }, "unit.json");
        imported.expect("it can be imported").report.keeps_access()
    }

    #[test]
    fn links_that_unit_does_not_follow_are_named() {
        for settings in [r#", "chroot": "/srv/a""#, r#", "follow_symlinks": false"#] {
            assert!(keeps_access(settings, Some(false)), "{settings}");
            assert!(!keeps_access(settings, Some(true)), "{settings}");
            assert!(!keeps_access(settings, None), "{settings}");
        }
        for settings in ["", r#", "follow_symlinks": true, "traverse_mounts": true"#] {
            assert!(keeps_access(settings, Some(true)), "{settings}");
        }
        assert!(!keeps_access(r#", "traverse_mounts": false"#, Some(false)));
    }
}
