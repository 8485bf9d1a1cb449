//! Settings of PHP in parameters of FastCGI, which are those of one request.

/// The parameters with settings, and the table of a pool for those of each.
pub(crate) const PHP_PARAMETERS: [(&str, &str); 2] =
    [("PHP_VALUE", "php_value"), ("PHP_ADMIN_VALUE", "php_admin_value")];

/// The settings of a `PHP_VALUE` by name.
pub(crate) fn settings_in(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = text.split(['\n', ';']).map(str::trim).filter(|line| !line.is_empty());
    lines.map(|line| {
        let (name, value) = line.split_once('=').unwrap_or((line, ""));
        (name.trim(), value.trim().trim_matches('"'))
    })
}
