//! Settings of a site about how its answers leave, in `[[sites]]`.

use maitred_rules::Pattern;

use crate::directive::{Directive, Needs, Preset};
use crate::output::{Output, SendfileRoot};

/// The directives of a site that are about how its answers leave.
pub const DIRECTIVES: &[Directive<Output>] = &[Directive {
    name: "sendfile_roots",
    default: Preset::Words("none"),
    unit: "",
    takes: "a table of paths and folders such as { \"/protected/\" = \"/srv/files\" }",
    needs: Needs::Live,
    doc: "Folders whose files scripts may have sent in place of their own answers: with \
          `X-Accel-Redirect`, which names a path that begins as one of these, or `X-Sendfile`, which \
          names a file in one of the folders. No client can ask for these paths. Hidden files and \
          PHP source are not sent. See [What PHP can tell the server](../guide/from-php.md).",
    example: "{ \"/protected/\" = \"files\" }",
    read: |output, value| {
        for root in value.entries("the path of a directory")? {
            let path = format!("{}/", root.name.trim_end_matches('/'));
            if path == "/" || Pattern::parse(&format!("{path}*")).is_err() {
                return Err(root.misnamed("is no path; expected one such as \"/protected/\""));
            }
            let folder = root.value.directory()?;
            output.sendfile_roots.push(SendfileRoot { path, folder });
        }
        Ok(())
    },
}];
