/*
 * A booted application that is copied. The script runs in the zygote until it waits for a request;
 * there the zygote stays, and forks. Each copy returns from the same call with a request of its
 * own.
 *
 * The effects of the boot stay as in any request that had them: globals, directives, handlers,
 * headers, shutdown functions. The state of the request itself is renewed here.
 */
#include "engine.h"

#include <string.h>

#include <ext/standard/basic_functions.h>
#include <ext/standard/php_filestat.h>
#include <zend_gc.h>

/* The start of a header that sets a cookie. */
#define SET_COOKIE "Set-Cookie:"

/* Most characters of a cookie's name in a message. */
#define COOKIE_NAME_MAX 64

/* Number of persistent resources after PHP's startup. */
static uint32_t persistent_at_start;

/* Number of included files at the end of the boot; later ones follow them. */
static uint32_t included_at_boot;

/* The original opcache_invalidate(). */
static zif_handler invalidate;

/* Extensions with threads or locks of their own, which do not survive a fork. */
static const char *const unfit[] = { "grpc", "openswoole", "parallel", "swoole" };

void maitred_snapshot_start(void)
{
	persistent_at_start = zend_hash_num_elements(&EG(persistent_list));
}

static bool session_is_open(void)
{
	zval name;
	zval status;
	bool is_open = false;

	if (!zend_hash_str_exists(CG(function_table), "session_status", strlen("session_status"))) {
		return false;
	}
	ZVAL_STRING(&name, "session_status");
	if (call_user_function(NULL, NULL, &name, &status, 0, NULL) == SUCCESS) {
		/* PHP_SESSION_ACTIVE */
		is_open = Z_TYPE(status) == IS_LONG && Z_LVAL(status) == 2;
		zval_ptr_dtor(&status);
	}
	zval_ptr_dtor(&name);
	return is_open;
}

/* The cookie that a header sets; NULL: it sets none. */
static const char *cookie_of(const sapi_header_struct *header)
{
	size_t length = strlen(SET_COOKIE);

	if (strncasecmp(header->header, SET_COOKIE, length)) {
		return NULL;
	}
	return header->header + length + strspn(header->header + length, " \t");
}

/* A cookie of the boot, except that of its session; NULL: there is none. */
static const char *boot_cookie(void)
{
	const char *session = maitred_session_name();
	size_t length = session ? strlen(session) : 0;
	zend_llist_position position;
	zend_llist *headers = &SG(sapi_headers).headers;

	for (sapi_header_struct *header = zend_llist_get_first_ex(headers, &position); header;
		header = zend_llist_get_next_ex(headers, &position)) {
		const char *cookie = cookie_of(header);
		if (cookie && !(session && !strncmp(cookie, session, length) && cookie[length] == '=')) {
			return cookie;
		}
	}
	return NULL;
}

/* The name of a persistent connection, as its extension calls it. */
static const char *kept_connection(void)
{
	const char *name = NULL;
	zend_string *key;

	if (zend_hash_num_elements(&EG(persistent_list)) <= persistent_at_start) {
		return NULL;
	}
	ZEND_HASH_FOREACH_STR_KEY(&EG(persistent_list), key) {
		name = key ? ZSTR_VAL(key) : "without a name";
	} ZEND_HASH_FOREACH_END();
	return name;
}

/* From PHP 8.4 on there is a buffer by default, and `opcache.jit` is set to disable. */
static bool jit_is_on(void)
{
	static const char *const off[] = { "", "0", "disable", "false", "no", "off" };
	const char *jit = zend_ini_string("opcache.jit", strlen("opcache.jit"), 0);

	if (zend_ini_long("opcache.jit_buffer_size", strlen("opcache.jit_buffer_size"), 0) <= 0) {
		return false;
	}
	for (size_t i = 0; i < sizeof(off) / sizeof(off[0]); i++) {
		if (!jit || !strcasecmp(jit, off[i])) {
			return false;
		}
	}
	return true;
}

/* The reason why copies of this process must not serve; false: there is none. */
static bool find_obstacle(char *why, size_t size)
{
	const char *cookie;
	const char *kept;

	for (size_t i = 0; i < sizeof(unfit) / sizeof(unfit[0]); i++) {
		if (zend_hash_str_exists(&module_registry, unfit[i], strlen(unfit[i]))) {
			snprintf(why, size,
				"the extension %s does not survive a fork; leave it out of this pool's php.ini",
				unfit[i]);
			return true;
		}
	}
	if (jit_is_on()) {
		snprintf(why, size,
			"OPcache's JIT is on, whose code copies of a process must not share; set "
			"php_admin_value = { \"opcache.jit_buffer_size\" = \"0\" }");
		return true;
	}
	if (session_is_open()) {
		snprintf(why, size,
			"a session is open, which all visitors would share; call session_start() after "
			"the snapshot");
		return true;
	}
	cookie = boot_cookie();
	if (cookie) {
		size_t length = strcspn(cookie, "=;");
		snprintf(why, size,
			"the boot sets a cookie (%.*s), which all visitors would get; set it after the snapshot",
			(int) MIN(length, COOKIE_NAME_MAX), cookie);
		return true;
	}
	kept = kept_connection();
	if (kept) {
		snprintf(why, size,
			"a persistent connection is open (%s), which all copies would share; connect after "
			"the snapshot, or without pconnect", kept);
		return true;
	}
	return false;
}

/*
 * Drops the session that the boot has used and closed, and its cookie: the only one that is left
 * (find_obstacle()).
 */
static void forget_boot_session(void)
{
	sapi_header_line cookies = { .line = "Set-Cookie", .line_len = strlen("Set-Cookie") };
	unsigned char sent = SG(headers_sent);

	maitred_forget_session();
	/* If the boot has printed much, PHP takes its headers for sent. */
	SG(headers_sent) = 0;
	sapi_header_op(SAPI_HEADER_DELETE, &cookies);
	SG(headers_sent) = sent;
}

/* Drops the boot's output; its output buffers stay. */
static void drop_output(void)
{
	if (OG(active)) {
		php_output_clean_all();
	}
	OG(flags) &= ~(PHP_OUTPUT_SENT | PHP_OUTPUT_DISABLED);
	OG(output_start_filename) = NULL;
	OG(output_start_lineno) = 0;
}

/* Keeps the boot's headers, which set no cookie, and the callback of header_register_callback(). */
static void activate_sapi(void)
{
	sapi_headers_struct headers = SG(sapi_headers);
	zval callback;

	ZVAL_COPY_VALUE(&callback, &SG(callback_func));
	sapi_activate();
	SG(sapi_headers) = headers;
	ZVAL_COPY_VALUE(&SG(callback_func), &callback);
}

/* Code that was compiled at boot does not request variables that are filled on demand. */
static void renew_if_used(const char *name)
{
	zend_string *key;

	if (!zend_hash_str_exists(&EG(symbol_table), name, strlen(name))) {
		return;
	}
	key = zend_string_init(name, strlen(name), 0);
	zend_is_auto_global(key);
	zend_string_release(key);
}

static void begin_copy(const struct maitred_request *request)
{
	int status = SG(sapi_headers).http_response_code;

	maitred_begin(request);
	maitred_engine.requests++;
	PG(connection_status) = PHP_CONNECTION_NORMAL;
	PG(header_is_being_sent) = 0;
	maitred_fill_request_info(request);
	SG(sapi_headers).http_response_code = status;
	activate_sapi();
	zend_set_timeout(EG(timeout_seconds), 1);
	php_clear_stat_cache(0, NULL, 0);
	php_hash_environment();
	renew_if_used("_SERVER");
	renew_if_used("_ENV");
	renew_if_used("_REQUEST");
	maitred_reset_peak_memory();
}

/* With FFI a script can do anything. The directive is a bool, or allows it to preloaded scripts. */
static bool ffi_is_on(void)
{
	const zend_ini_entry *enable = zend_hash_str_find_ptr(EG(ini_directives), "ffi.enable",
		strlen("ffi.enable"));
	const char *preload;

	if (!enable || !enable->value || !zend_hash_str_exists(&module_registry, "ffi", strlen("ffi"))) {
		return false;
	}
	if (!zend_string_equals_literal_ci(enable->value, "preload")) {
		return zend_ini_parse_bool(enable->value);
	}
	preload = zend_ini_string("opcache.preload", strlen("opcache.preload"), 0);
	return preload && *preload;
}

const struct maitred_request *maitred_await_copy(void)
{
	void *exchange = maitred_worker_exchange();
	const struct maitred_request *request = NULL;
	char why[512] = "";
	bool is_unfit = find_obstacle(why, sizeof(why));

	maitred_reads_end();
	zend_unset_timeout();
	if (!is_unfit) {
		forget_boot_session();
		zend_gc_collect_cycles();
	}
	included_at_boot = EG(included_files).nNumUsed;
	maitred_engine.booted_full = maitred_cache_is_full();
	if (maitred_engine.callbacks->freeze(exchange, is_unfit ? why : NULL)) {
		maitred_engine.boots = false;
		maitred_engine.copied = true;
		maitred_engine.spent |= ffi_is_on();
		maitred_timers_after_fork();
		maitred_child_start();
		request = maitred_engine.callbacks->next(exchange);
	}
	if (!request) {
		zend_bailout();
	}
	return request;
}

PHP_FUNCTION(maitred_snapshot)
{
	const struct maitred_request *request;

	if (zend_parse_parameters_none() == FAILURE) {
		RETURN_THROWS();
	}
	if (!maitred_engine.boots) {
		RETURN_FALSE;
	}
	drop_output();
	request = maitred_await_copy();
	/* It has its request, and the script continues like any other. */
	maitred_worker_leaves();
	begin_copy(request);
	RETURN_TRUE;
}

/*
 * opcache_reset(): existing copies cannot get changed scripts, so the application is booted again
 * after this request. During the boot the cache is current anyway.
 */
static ZEND_NAMED_FUNCTION(ask_for_renewal)
{
	(void) execute_data;
	maitred_engine.renew |= maitred_engine.copied;
	RETURN_TRUE;
}

/* By the path under which it was included; a deleted file only has its given name. */
static bool is_of_boot(zend_string *name)
{
	zend_string *path = zend_resolve_path(name);
	char *expanded = path ? NULL : expand_filepath(ZSTR_VAL(name), NULL);
	zval *found = NULL;

	if (path) {
		found = zend_hash_find(&EG(included_files), path);
		zend_string_release(path);
	} else if (expanded) {
		found = zend_hash_str_find(&EG(included_files), expanded, strlen(expanded));
		efree(expanded);
	}
	/* The value is the first member of a Bucket. */
	return found && (uint32_t) ((Bucket *) found - EG(included_files).arData) < included_at_boot;
}

/* opcache_invalidate(): a script that the boot has not loaded is compiled again on its next use. */
static ZEND_NAMED_FUNCTION(invalidate_or_renew)
{
	zval *name;

	invalidate(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	if (!maitred_engine.copied || maitred_engine.renew || EG(exception)) {
		return;
	}
	name = ZEND_CALL_ARG(execute_data, 1);
	if (Z_TYPE_P(name) == IS_STRING) {
		maitred_engine.renew = is_of_boot(Z_STR_P(name));
	}
}

zif_handler maitred_take_over(const char *name, zif_handler handler)
{
	zend_function *function = zend_hash_str_find_ptr(CG(function_table), name, strlen(name));
	zif_handler before = NULL;

	if (function && function->type == ZEND_INTERNAL_FUNCTION) {
		before = function->internal_function.handler;
		function->internal_function.handler = handler;
	}
	return before;
}

void maitred_php_boot(const struct maitred_request *boot, struct maitred_worked *worked)
{
	maitred_engine.boots = true;
	maitred_take_over("opcache_reset", ask_for_renewal);
	invalidate = maitred_take_over("opcache_invalidate", invalidate_or_renew);
	maitred_watch_lasting();
	maitred_php_work(boot, worked);
}
