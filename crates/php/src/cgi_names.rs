/// CGI variables that the server itself reads. Each is recognised once, on arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the variable of its name")]
pub enum Name {
    RequestMethod,
    RequestUri,
    QueryString,
    ScriptName,
    ScriptFilename,
    PathInfo,
    PathTranslated,
    RedirectUrl,
    DocumentRoot,
    ServerName,
    ServerSoftware,
    RemoteUser,
    ContentType,
    ContentLength,
    HttpCookie,
    HttpAuthorization,
    PhpValue,
    PhpAdminValue,
    RequestBodyFile,
}

/// Number of names.
pub(crate) const NAMES: usize = Name::RequestBodyFile as usize + 1;

impl Name {
    /// The name, if it is one of them.
    pub(crate) fn of(name: &[u8]) -> Option<Name> {
        Some(match name {
            b"REQUEST_METHOD" => Name::RequestMethod,
            b"REQUEST_URI" => Name::RequestUri,
            b"QUERY_STRING" => Name::QueryString,
            b"SCRIPT_NAME" => Name::ScriptName,
            b"SCRIPT_FILENAME" => Name::ScriptFilename,
            b"PATH_INFO" => Name::PathInfo,
            b"PATH_TRANSLATED" => Name::PathTranslated,
            b"REDIRECT_URL" => Name::RedirectUrl,
            b"DOCUMENT_ROOT" => Name::DocumentRoot,
            b"SERVER_NAME" => Name::ServerName,
            b"SERVER_SOFTWARE" => Name::ServerSoftware,
            b"REMOTE_USER" => Name::RemoteUser,
            b"CONTENT_TYPE" => Name::ContentType,
            b"CONTENT_LENGTH" => Name::ContentLength,
            b"HTTP_COOKIE" => Name::HttpCookie,
            b"HTTP_AUTHORIZATION" => Name::HttpAuthorization,
            b"PHP_VALUE" => Name::PhpValue,
            b"PHP_ADMIN_VALUE" => Name::PhpAdminValue,
            b"REQUEST_BODY_FILE" => Name::RequestBodyFile,
            _ => return None,
        })
    }
}
