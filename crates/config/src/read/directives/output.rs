//! Settings of a site's responses, in `[[sites]]`.

use maitred_rules::Pattern;
use maitred_rules::content_encoding::{ContentEncoding, refuse_type};

use crate::model::output::{Output, SendfileRoot};
use crate::read::directive::{Directive, Needs, Preset, store};

/// The directives of a site's responses.
pub const DIRECTIVES: &[Directive<Output>] = &[
    Directive {
        name: "compression",
        default: Preset::Value("[\"zstd\", \"gzip\", \"br\"]"),
        takes: "\"zstd\", \"br\", \"gzip\", an array of them, or false",
        needs: Needs::Live,
        doc: "The content encodings of responses of scripts and of static files, for clients \
              that accept them. Where a client accepts several equally, scripts' responses get \
              the first of these, and files, which are compressed once and cached, the smallest. \
              See [Compression](../guide/compression.md).",
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
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether `app.css.br`, `app.css.zst` or `app.css.gz` is sent for `app.css` to \
              clients that accept it, if it is not older; for types and sizes that are \
              compressed at all (`compression_types`, `compression_min_length`).",
        example: "false",
        read: |output, value| store(&mut output.precompressed, value.boolean()),
    },
    Directive {
        name: "compression_min_length",
        default: Preset::Value("\"1k\""),
        takes: "a size from 0 on such as \"1k\"",
        needs: Needs::Live,
        doc: "Smaller responses are not compressed.",
        example: "\"4k\"",
        read: |output, value| store(&mut output.compression_min_length, value.size(0)),
    },
    Directive {
        name: "compression_types",
        default: Preset::Words(
            "text, JSON, XML, JavaScript, WebAssembly, and fonts and images whose \
                                formats are not compressed",
        ),
        takes: "a media type such as \"text/css\", a kind such as \"text/\", an ending such as \
                \"+json\", or an array of them",
        needs: Needs::Live,
        doc: "The media types to compress, in place of the default. `text/event-stream` is never \
              compressed.",
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
        takes: "a table of paths and folders such as { \"/protected/\" = \"/srv/files\" }",
        needs: Needs::Live,
        doc: "Directories with files that scripts may send in place of their own body: with an \
              `X-Accel-Redirect` header, which names a path that starts with one of these, or \
              `X-Sendfile`, which names a file in one of the directories. Clients cannot request \
              these paths. Hidden files and PHP source are not sent. See [What PHP can tell the \
              server](../guide/from-php.md).",
        example: "{ \"/protected/\" = \"files\" }",
        read: |output, value| {
            for root in value.entries("the path of a directory")? {
                let path = format!("{}/", root.name.trim_end_matches('/'));
                if path == "/" || Pattern::parse(&format!("{path}*")).is_err() {
                    return Err(root.misnamed("is no path; expected one such as \"/protected/\""));
                }
                let folder = root.value.path()?;
                output.sendfile_roots.push(SendfileRoot { path, folder });
            }
            Ok(())
        },
    },
];
