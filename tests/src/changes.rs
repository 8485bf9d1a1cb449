//! A script that changes whatever a script can change.

/// Tells all that a script can see of what it can change, as it was before it has changed it. Where
/// the document root has a `later.php` with a class `Later`.
pub const CHANGES_ALL: &str = r#"
function state(): array {
    return [
        'global' => $GLOBALS['kept'] ?? null,
        'static' => (function () { static $n = 0; return $n; })(),
        'constants' => defined('LATER'),
        'ini' => ini_get('precision') . ini_get('date.timezone') . ini_get('memory_limit'),
        'error_reporting' => error_reporting(),
        'error_handler' => get_debug_type(set_error_handler(null)),
        'levels' => ob_get_level(),
        'locale' => setlocale(LC_ALL, 0),
        'cwd' => getcwd(),
        'umask' => umask(),
        'env' => getenv('LATER'),
        'included' => get_included_files(),
        'classes' => class_exists('Later', false),
        'autoload' => count(spl_autoload_functions()),
        'wrappers' => in_array('later', stream_get_wrappers()),
        'session' => session_status() . session_id(),
        'headers' => headers_list(),
        'error' => error_get_last(),
        'files' => glob(sys_get_temp_dir() . '/snapshot-*'),
        'open' => count(scandir('/proc/self/fd')),
        'status' => http_response_code(),
        'abort' => ignore_user_abort(),
        'limit' => ini_get('max_execution_time'),
        'regex' => preg_last_error(),
        'zone' => date_default_timezone_get(),
        'encoding' => mb_internal_encoding(),
        'gc' => gc_enabled(),
        'assert' => ini_get('zend.assertions'),
        'libxml' => libxml_use_internal_errors(),
        'tok' => strtok("\n"),
    ];
}
$before = state();
$kept = 'mine';
const LATER = 1;
ini_set('precision', '5'); ini_set('memory_limit', '99M'); ini_set('date.timezone', 'Asia/Tokyo');
error_reporting(0); set_error_handler(fn() => true); set_exception_handler(fn() => null);
setlocale(LC_ALL, 'C.UTF-8'); chdir('/'); umask(0); putenv('LATER=1');
$open = tmpfile(); $temporary = tempnam(sys_get_temp_dir(), 'snapshot-');
register_shutdown_function(function () use ($temporary) { unlink($temporary); });
require $_SERVER['DOCUMENT_ROOT'] . '/later.php';
spl_autoload_register(fn() => null); stream_wrapper_register('later', 'Later');
header('X-Later: 1'); http_response_code(201); header('Set-Cookie: a=b');
ignore_user_abort(true); set_time_limit(3); @preg_match('/(/', ''); @trigger_error('mine');
date_default_timezone_set('Europe/Paris'); mb_internal_encoding('ISO-8859-1'); gc_disable();
libxml_use_internal_errors(true); strtok("a\nb", "\n");
$_SERVER['LATER'] = $_GET['later'] = $_POST['later'] = $_COOKIE['later'] = $_ENV['LATER'] = 1;
ob_start(); http_response_code(200);
echo json_encode(['before' => $before, 'later' => isset($_GET['b'])]);
"#;
