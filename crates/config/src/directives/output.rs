//! Settings of a site about how its answers leave, in `[[sites]]`.

use maitred_rules::Pattern;
use maitred_rules::content_encoding::{ContentEncoding, refuse_type};

use crate::directive::{Directive, Needs, Preset};
use crate::output::{Output, SendfileRoot};

/// The directives of a site that are about how its answers leave.
pub const DIRECTIVES: &[Directive<Output>] = &[
    Directive {
        name: "compression",
        default: Preset::Value("[\"zstd\", \"gzip\", \"br\"]"),
        unit: "",
        takes: "\"zstd\", \"br\", \"gzip\", an array of them, or false",
        needs: Needs::Live,
        doc: "The codings in which scripts' answers and static files are sent to clients that take \
              them. Where a client likes several alike, scripts' answers get the first of these, and \
              files, which are compressed once and kept, the smallest. See \
              [Compression](../guide/compression.md).",
        example: "[\"br\", \"gzip\"]",
        read: |output, value| {
            output.compression = match value.boolean() {
                Ok(false) => Vec::new(),
                Ok(true) => return Err(value.wrong()),
                Err(_) => value.each(|item| item.text_as(ContentEncoding::named))?,
            };
            Ok(())
        },
    },
    Directive {
        name: "precompressed",
        default: Preset::Value("true"),
        unit: "",
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether `app.css.br`, `app.css.zst` or `app.css.gz` is sent for `app.css` to clients \
              that take it, if it is not older; for types and sizes that are compressed at all \
              (`compression_types`, `compression_min_length`).",
        example: "false",
        read: |output, value| {
            output.precompressed = value.boolean()?;
            Ok(())
        },
    },
    Directive {
        name: "compression_min_length",
        default: Preset::Value("\"1k\""),
        unit: "bytes",
        takes: "a size from 0 on such as \"1k\"",
        needs: Needs::Live,
        doc: "What is smaller is sent as it is.",
        example: "\"4k\"",
        read: |output, value| {
            output.compression_min_length = value.size(0)?;
            Ok(())
        },
    },
    Directive {
        name: "compression_types",
        default: Preset::Words(
            "text, JSON, XML, JavaScript, WebAssembly, and fonts and images whose \
                                formats are not compressed",
        ),
        unit: "",
        takes: "a media type such as \"text/css\", a kind such as \"text/\", an ending such as \
                \"+json\", or an array of them",
        needs: Needs::Live,
        doc: "What is compressed, in place of the default. `text/event-stream` never is.",
        example: "[\"text/\", \"application/json\", \"+json\"]",
        read: |output, value| {
            output.compression_types = value.each(|item| {
                let text = item.text()?;
                match refuse_type(text) {
                    Some(why) => Err(item.refused(why)),
                    None => Ok(text.to_owned()),
                }
            })?;
            Ok(())
        },
    },
    Directive {
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
    },
];
