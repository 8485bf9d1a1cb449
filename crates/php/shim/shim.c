/* Start of the engine, and the life of one request in it. */
#include "engine.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include <ext/standard/basic_functions.h>
#include <ext/standard/php_standard.h>
#include <zend_exceptions.h>
#include <zend_signal.h>

/* Calls to write of a function whose script is to end; then it is left by a bailout. */
#define WRITES_WHILE_LEAVING_MAX 16

struct maitred_engine maitred_engine;

/*
 * Ends the script as exit() does: the engine is as sound afterwards as after any script, and can
 * serve the next request. That is after the current function's return, and a function that goes on
 * writing may never return. What runs because the script ends (destructors, shutdown functions) is
 * not interrupted, and has no output, as in php-fpm. Returns false if the script cannot end so.
 */
static bool leave_script(void)
{
	bool leaves = (PG(connection_status) & PHP_CONNECTION_ABORTED)
		|| (EG(flags) & EG_FLAGS_IN_SHUTDOWN);

	if (maitred_engine.mode != MAITRED_CLASSIC) {
		return false;
	}
	if (EG(exception)) {
		return leaves && maitred_engine.writes_while_leaving++ < WRITES_WHILE_LEAVING_MAX;
	}
	PG(connection_status) = PHP_CONNECTION_ABORTED;
	if (leaves) {
		php_output_set_status(PHP_OUTPUT_DISABLED);
		return true;
	}
	if (!EG(current_execute_data)) {
		return false;
	}
	zend_throw_unwind_exit();
	return true;
}

void maitred_obey(int verdict)
{
	if (EXPECTED(verdict != MAITRED_CLIENT_GONE)) {
		return;
	}
	maitred_engine.client_gone = true;
	if (PG(ignore_user_abort) || !leave_script()) {
		php_handle_aborted_connection();
	}
}

void maitred_leave_script(void)
{
	if (!leave_script()) {
		php_handle_aborted_connection();
	}
}

void maitred_finish(void)
{
	if (maitred_engine.request && !maitred_engine.finished) {
		maitred_engine.finished = true;
		maitred_engine.callbacks->finish(maitred_engine.request->exchange);
	}
}

/* Also called at module startup, when there is no request. */
static int deactivate(void)
{
	maitred_finish();
	maitred_close_body();
	return SUCCESS;
}

static int startup(sapi_module_struct *sapi)
{
	return maitred_module_startup(sapi, &maitred_module_entry);
}

static sapi_module_struct sapi = {
	.pretty_name = "maitred",
	.startup = startup,
	.shutdown = php_module_shutdown_wrapper,
	.deactivate = deactivate,
	.ub_write = maitred_write,
	.flush = maitred_flush,
	.getenv = maitred_getenv,
	.sapi_error = php_error,
	.send_headers = maitred_send_headers,
	.read_post = maitred_read_body,
	.read_cookies = maitred_read_cookies,
	.register_server_variables = maitred_register_variables,
	.log_message = maitred_log_message,
	.php_ini_ignore_cwd = 1,
};

/*
 * Whether a directive already has this value since PHP started, when it read all values of the pool
 * like a php.ini. Such a value is not applied again: opcache.enable and zend.assertions can be
 * turned on at startup only.
 */
static bool holds(const zend_ini_entry *entry, const char *value)
{
	return entry->value && ZSTR_LEN(entry->value) == strlen(value)
		&& !memcmp(ZSTR_VAL(entry->value), value, strlen(value));
}

/*
 * Makes a value of the pool the directive's default, as in php-fpm's children: .user.ini and
 * ini_set() may change a php_value, but not a php_admin_value. A list of disabled functions adds to
 * that of php.ini.
 */
static int apply_value(const struct maitred_ini_value *value)
{
	zend_ini_entry *entry;
	zend_string *text;
	const char *effective = value->value;

	if (maitred_is_for_startup(value->name)) {
		return MAITRED_APPLIED;
	}
	entry = zend_hash_str_find_ptr(EG(ini_directives), value->name, strlen(value->name));
	if (!entry) {
		return MAITRED_UNKNOWN;
	}
	if (!strcmp(value->name, "error_reporting")) {
		zval *parsed = cfg_get_entry(value->name, strlen(value->name));
		if (parsed && Z_TYPE_P(parsed) == IS_STRING) {
			effective = Z_STRVAL_P(parsed);
		}
	}
	if (!holds(entry, effective)) {
		text = zend_string_init(effective, strlen(effective), 1);
		if (entry->on_modify
			&& entry->on_modify(entry, text, entry->mh_arg1, entry->mh_arg2, entry->mh_arg3,
				   ZEND_INI_STAGE_ACTIVATE)
				!= SUCCESS) {
			zend_string_release_ex(text, 1);
			return MAITRED_REFUSED;
		}
		entry->value = text;
	}
	if (value->admin) {
		entry->modifiable = ZEND_INI_SYSTEM;
	}
	maitred_disable_listed(value->name, value->value);
	return MAITRED_APPLIED;
}

static void apply_values(const struct maitred_settings *settings)
{
	for (size_t i = 0; i < settings->value_count; i++) {
		settings->values[i].fate = apply_value(&settings->values[i]);
	}
}

bool maitred_php_set_default(const char *name, const char *text)
{
	struct maitred_ini_value value = { .name = name, .value = text };
	bool applied = false;

	zend_first_try {
		applied = apply_value(&value) == MAITRED_APPLIED;
	} zend_end_try();
	return applied;
}

bool maitred_php_start(
	const struct maitred_settings *settings, const struct maitred_callbacks *callbacks)
{
	bool started = false;

	signal(SIGPIPE, SIG_IGN);
	maitred_engine.callbacks = callbacks;
	maitred_engine.fpm = settings->fpm;
	maitred_engine.mode = settings->mode;
	maitred_engine.preload = settings->preload;
	if (settings->fpm) {
		sapi.pretty_name = "FPM/FastCGI";
	}
	maitred_hook_modules();
	zend_signal_startup();
	sapi.name = (char *) settings->sapi_name;
	maitred_hook_activation(&sapi, maitred_activate);
	sapi_startup(&sapi);
	sapi.executable_location = (char *) settings->executable;
	sapi.php_ini_path_override = (char *) settings->ini_path;
	sapi.ini_entries = (char *) settings->ini_entries;
	sapi.php_ini_ignore = settings->no_ini_files;
	maitred_request_ini_start();

	if (sapi.startup(&sapi) != SUCCESS) {
		return false;
	}
	/* The server's own handlers stay: PHP need not query them again for every request. */
	SIGG(reset) = 0;
	SG(options) |= SAPI_OPTION_NO_CHDIR;
	maitred_hook_environment();
	maitred_note_fatal_errors();
	zend_first_try {
		maitred_close_preloaded_connections();
		apply_values(settings);
		maitred_snapshot_start();
		/* A php-fpm with pcntl does not mind; its own tests use that. */
		if (maitred_engine.mode == MAITRED_CLASSIC && !maitred_engine.fpm) {
			maitred_watch_lasting();
		}
		started = true;
	} zend_end_try();
	return started;
}

void maitred_php_stop(void)
{
	maitred_request_ini_stop();
	php_module_shutdown();
	sapi_shutdown();
}

void maitred_php_after_fork(void)
{
	/* Notes the handlers that this process has installed since it was forked. */
	zend_signal_startup();
	SIGG(reset) = 0;
	maitred_timers_after_fork();
	maitred_child_start();
}

const char *maitred_php_version(void)
{
	const char *version = zend_get_module_version("standard");
	return version ? version : PHP_VERSION;
}

/* A script path with a `..` component is not served (as in php-fpm). */
static bool is_valid_path(const char *path)
{
	for (const char *dots = strstr(path, ".."); dots; dots = strstr(dots + 1, "..")) {
		if ((dots == path || dots[-1] == '/') && (dots[2] == '\0' || dots[2] == '/')) {
			return false;
		}
	}
	return true;
}

/* The script's location, for requests with our own variables. */
static void fill_paths(const struct maitred_request *request)
{
	sapi_request_info *info = &SG(request_info);
	const char *script = request->script_filename;

	if (maitred_engine.directives.fix_pathinfo || !request->path_info) {
		info->request_uri = (char *) request->script_name;
	} else {
		info->request_uri = (char *) request->path_info;
	}
	info->path_translated = script && is_valid_path(script) ? estrdup(script) : NULL;
}

void maitred_fill_request_info(const struct maitred_request *request)
{
	sapi_request_info *info = &SG(request_info);

	SG(server_context) = (void *) request;
	SG(sapi_headers).http_response_code = 200;
	EG(exit_status) = 0;
	info->request_method = request->method;
	info->query_string = (char *) request->query_string;
	info->content_type = request->content_type;
	info->content_length = request->content_length;
	if (request->foreign) {
		info->request_uri = (char *) request->request_uri;
		info->path_translated =
			request->path_translated ? estrdup(request->path_translated) : NULL;
	} else {
		fill_paths(request);
	}
	php_handle_auth_data(request->authorization);
}

static void answer_briefly(int status, const char *text)
{
	zend_try {
		SG(sapi_headers).http_response_code = status;
		PUTS(text);
	} zend_end_try();
}

static void refuse_script(const char *path, int error)
{
	bool missing = (error == ENOENT || error == ENOTDIR)
		&& !maitred_engine.request->foreign;
	const char *what = missing ? "Primary script unknown" : "Unable to open primary script";
	char *message;

	spprintf(&message, 0, "%s: %s (%s)", what, path, strerror(error));
	maitred_log(MAITRED_ERROR, message);
	efree(message);
	if (error == EACCES) {
		answer_briefly(403, "Access denied.\n");
	} else {
		answer_briefly(404, missing ? "File not found.\n" : "No input file specified.\n");
	}
}

/* Sends the response for a script that is not run. Returns false if the script is to be opened. */
static bool turned_away(void)
{
	int admission = maitred_engine.request->admission;
	char *message;

	if (admission == MAITRED_NO_METHOD) {
		return true;
	}
	if (!SG(request_info).path_translated) {
		maitred_log(MAITRED_DEBUG, "Primary script unknown");
		answer_briefly(404, "File not found.\n");
		return true;
	}
	if (admission != MAITRED_EXTENSION) {
		return false;
	}
	spprintf(&message, 0,
		"Access to the script '%s' has been denied (see security.limit_extensions)",
		SG(request_info).path_translated);
	maitred_log(MAITRED_NOTICE, message);
	efree(message);
	answer_briefly(403, "Access denied.\n");
	return true;
}

static void execute(void)
{
	zend_file_handle file = { 0 };
	char *path;

	if (UNEXPECTED(turned_away())) {
		return;
	}
	/* php_fopen_primary_script() frees the path when it fails. */
	path = estrdup(SG(request_info).path_translated);
	if (UNEXPECTED(php_fopen_primary_script(&file) == FAILURE)) {
		refuse_script(path, errno);
	} else {
		maitred_folder_enter(path, strlen(path));
		php_execute_script(&file);
		maitred_folder_leave(BG(user_shutdown_function_names) != NULL);
	}
	/* OPcache removes the handle from the engine's list of files, so the engine does not close it. */
	if (!file.in_list) {
		zend_destroy_file_handle(&file);
	}
	efree(path);
}

void maitred_add_error_header(void)
{
	const char *line = maitred_engine.directives.error_header;

	if (EG(exit_status) == 255 && line && *line && !SG(headers_sent)) {
		sapi_header_line header = { .line = line, .line_len = strlen(line) };
		sapi_header_op(SAPI_HEADER_REPLACE, &header);
	}
}

static void answer_startup_failure(const struct maitred_request *request)
{
	static const char head[] = "Status: 500 Internal Server Error\r\n"
		"Content-type: text/html; charset=UTF-8\r\n\r\n";

	if (!SG(headers_sent)) {
		maitred_engine.callbacks->send(request->exchange, head, sizeof(head) - 1);
	}
	maitred_finish();
}

/*
 * After a failed startup: PHP removes the uploads that it has read by then, and no other part of it
 * runs. The unread rest of the body is not fetched just to be dropped.
 */
static void drop_uploads(void)
{
	zend_try {
		SG(post_read) = 1;
		sapi_deactivate();
	} zend_end_try();
}

static void run_request(const struct maitred_request *request, struct maitred_served *served)
{
	int completed_status;

	maitred_folder_return();
	maitred_fill_request_info(request);
	if (UNEXPECTED(php_request_startup() == FAILURE)) {
		answer_startup_failure(request);
		drop_uploads();
		served->outcome = MAITRED_STARTUP_FAILED;
		served->response_status = 500;
		return;
	}
	if (maitred_engine.works) {
		maitred_worker_starts();
	}
	if (EXPECTED(!maitred_engine.body_is_cut)) {
		execute();
	}
	completed_status = maitred_complete_response();
	if (EXPECTED(!completed_status)) {
		maitred_add_error_header();
	}
	if (SG(request_info).path_translated) {
		efree(SG(request_info).path_translated);
		SG(request_info).path_translated = NULL;
	}
	served->peak_memory = zend_memory_peak_usage(1);
	served->response_status = completed_status ? completed_status
		: SG(sapi_headers).http_response_code;
	/* Only with a booted script can OPcache not restart by itself. */
	served->cache_full = (maitred_engine.works || maitred_engine.copied)
		&& (maitred_cache_is_full() || maitred_engine.booted_full);
	served->conflicts = maitred_engine.preloads && maitred_preloading_conflicts();
	served->outcome = maitred_end_request() ? MAITRED_FINISHED : MAITRED_BAILOUT_FATAL;
}

void maitred_begin(const struct maitred_request *request)
{
	maitred_engine.request = request;
	maitred_engine.finished = false;
	maitred_engine.client_gone = false;
	maitred_engine.body_is_cut = false;
	maitred_engine.fatal = false;
	maitred_engine.writes_while_leaving = 0;
}

bool maitred_php_prepare(const struct maitred_request *request)
{
	bool done = false;

	maitred_begin(request);
	zend_first_try {
		maitred_pass_values(request);
		done = true;
	} zend_catch {
		answer_startup_failure(request);
	} zend_end_try();
	maitred_engine.request = NULL;
	return done;
}

/* GH-17643 is mended in 8.3.19, 8.4.5 and 8.5. */
#define DECODES_PATH_INFO \
	(PHP_VERSION_ID >= 80405 || (PHP_VERSION_ID >= 80319 && PHP_VERSION_ID < 80400))

void maitred_php_path_directives(struct maitred_path_directives *directives)
{
	directives->fix_pathinfo = maitred_engine.directives.fix_pathinfo;
	directives->discard_path = maitred_engine.directives.discard_path;
	directives->decodes_path
		= PHP_VERSION_ID >= 80500 && !maitred_engine.directives.script_path_encoded;
	directives->decodes_path_info = DECODES_PATH_INFO && !directives->decodes_path;
	directives->doc_root = PG(doc_root);
}

bool maitred_keeps_folder(void)
{
	return maitred_engine.fpm;
}

bool maitred_php_resolves(const char *path)
{
	char resolved[MAXPATHLEN];

	if (!IS_SLASH(*path)) {
		maitred_folder_leave(true);
	}
	/*
	 * A worker script is waiting for its next request. PHP's function allocates from the script's
	 * heap, and with a full heap it would longjmp over the Rust frames of the wait.
	 */
	if (EG(bailout)) {
		return realpath(path, resolved) != NULL;
	}
	return tsrm_realpath(path, resolved) != NULL;
}

size_t maitred_php_peak_memory(void)
{
	return maitred_engine.request ? zend_memory_peak_usage(1) : 0;
}

void maitred_php_count_requests(uint64_t started)
{
	maitred_engine.requests = started;
}

int maitred_php_response_status(void)
{
	return maitred_engine.request ? SG(sapi_headers).http_response_code : 0;
}

int maitred_php_exit_status(void)
{
	return maitred_engine.request ? EG(exit_status) : 0;
}

void maitred_run(const struct maitred_request *request, struct maitred_served *served)
{
	memset(served, 0, sizeof(*served));
	served->outcome = MAITRED_BAILOUT_FATAL;
	maitred_begin(request);
	zend_first_try {
		run_request(request, served);
	} zend_end_try();

	maitred_finish();
	served->client_gone = maitred_engine.client_gone;
	served->spent = maitred_engine.spent;
	served->renew = maitred_engine.renew;
	if (served->outcome == MAITRED_BAILOUT_FATAL && served->client_gone) {
		served->outcome = MAITRED_BAILOUT_CLIENT_GONE;
	}
	SG(server_context) = NULL;
	maitred_engine.request = NULL;
}

void maitred_php_serve(const struct maitred_request *request, struct maitred_served *served)
{
	maitred_engine.requests++;
	maitred_run(request, served);
}
