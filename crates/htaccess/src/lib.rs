//! Apache's `.htaccess` files: parsed, merged and evaluated as Apache 2.4 does. No I/O, no clock,
//! no async: [`file::parse`] reads a file, [`conf::Conf::below`] merges it with those of the
//! directories above, and [`process::Processor::decide`] evaluates a request. Comments name the
//! function of Apache that a piece of code follows.

mod absolute_url;
pub mod conf;
mod cookie;
mod directives;
mod expr;
pub mod file;
pub mod handlers;
mod left_out;
mod limits;
pub mod modules;
pub mod overrides;
pub mod process;
pub mod read_log;
mod regex;
pub mod request;
pub mod response;
mod rewrite;
pub mod table;
mod text;
pub mod user_groups;
pub mod weight;
pub mod words;

use expr::shown as expr_shown;
