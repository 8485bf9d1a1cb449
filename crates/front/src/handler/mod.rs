//! The life of a request: from the request header to the response.

pub(crate) mod accel_redirect;
pub(crate) mod admin_cache;
pub(crate) mod admin_pages;
pub(crate) mod cache;
pub(crate) mod classic_pool;
pub(crate) mod context;
pub(crate) mod decision;
pub(crate) mod fastcgi_params;
pub(crate) mod htaccess;
pub(crate) mod htaccess_cache;
pub(crate) mod htaccess_listing;
pub(crate) mod htaccess_response;
pub(crate) mod htaccess_users;
pub(crate) mod proxy;
pub(crate) mod refusal;
pub(crate) mod request;
pub(crate) mod request_detail;
pub(crate) mod request_spans;
pub(crate) mod respond;
pub(crate) mod response_headers;
pub(crate) mod route;
pub(crate) mod route_rules;
pub(crate) mod rules;
pub(crate) mod script;
pub(crate) mod script_response;
pub(crate) mod static_files;
