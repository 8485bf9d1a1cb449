/*
 * Worker mode: a script is booted once and takes one request after the other, with the functions of
 * FrankenPHP. Between two requests, the state that is derived from a request or belongs to its
 * response is reset; all other state of the script is kept.
 *
 * Between two requests there is an empty one, whose output is dropped: code that runs then, and
 * code that runs when the script has ended, finds PHP in a valid state.
 */
#include "engine.h"

#include <string.h>

#include <ext/json/php_json.h>
#include <ext/spl/spl_exceptions.h>
#include <ext/standard/basic_functions.h>
#include <ext/standard/php_filestat.h>
#include <zend_exceptions.h>
#include <zend_smart_str.h>

/* frankenphp_log()'s levels, those of Go's package slog. */
#define LEVEL_DEBUG (-4)
#define LEVEL_INFO 0
#define LEVEL_WARN 4
#define LEVEL_ERROR 8

/* The function that `maitred leaks` defines before a pool's script, called between two requests. */
#define LOOK "maitred\\leaks\\look"

static struct {
	const struct maitred_request *boot;
	zend_function *look;
	bool booted;
	bool in_request;
	/* In a copy, also the boot's warm-up requests count. */
	bool has_served;
} worker;

/* Modules with variables of the request, beside the session. */
static const char *const reset_modules[] = { "filter", "zlib" };

static zend_module_entry *module_named(const char *name)
{
	return zend_hash_str_find_ptr(&module_registry, name, strlen(name));
}

static void start_modules(void)
{
	zend_module_entry *session = maitred_session_name() ? module_named("session") : NULL;

	for (size_t i = 0; i < sizeof(reset_modules) / sizeof(*reset_modules); i++) {
		zend_module_entry *module = module_named(reset_modules[i]);
		if (module && module->request_startup_func) {
			module->request_startup_func(module->type, module->module_number);
		}
	}
	/* It may start a session (session.auto_start). */
	if (session && session->request_startup_func) {
		session->request_startup_func(session->type, session->module_number);
	}
}

/* As at the end of a request: otherwise PHP assumes that the rewriting buffer is still active. */
static void forget_rewriting(url_adapt_state_ex_t *state)
{
	if (EXPECTED(!state->active)) {
		return;
	}
	smart_str_free(&state->tag);
	smart_str_free(&state->arg);
	smart_str_free(&state->val);
	smart_str_free(&state->buf);
	smart_str_free(&state->result);
	smart_str_free(&state->form_app);
	smart_str_free(&state->url_app);
	smart_str_free(&state->attr_val);
	state->active = 0;
	state->tag_type = 0;
	state->attr_type = 0;
}

/* output_add_rewrite_var() and session.use_trans_sid. */
static void end_rewriting(void)
{
	forget_rewriting(&BG(url_adapt_output_ex));
	forget_rewriting(&BG(url_adapt_session_ex));
}

static void end_modules(void)
{
	maitred_end_session();
	for (size_t i = 0; i < sizeof(reset_modules) / sizeof(*reset_modules); i++) {
		zend_module_entry *module = module_named(reset_modules[i]);
		if (module && module->request_shutdown_func) {
			module->request_shutdown_func(module->type, module->module_number);
		}
	}
}

static void start_buffers(void)
{
	if (PG(output_handler) && PG(output_handler)[0]) {
		zval handler;
		ZVAL_STRING(&handler, PG(output_handler));
		php_output_start_user(&handler, 0, PHP_OUTPUT_HANDLER_STDFLAGS);
		zval_ptr_dtor(&handler);
	} else if (PG(output_buffering)) {
		php_output_start_user(NULL, PG(output_buffering) > 1 ? PG(output_buffering) : 0,
			PHP_OUTPUT_HANDLER_STDFLAGS);
	} else if (PG(implicit_flush)) {
		php_output_set_implicit_flush(1);
	}
}

static void forget_request_info(void)
{
	sapi_request_info *info = &SG(request_info);

	if (info->path_translated) {
		efree(info->path_translated);
	}
	info->path_translated = NULL;
	info->request_method = NULL;
	info->query_string = NULL;
	info->request_uri = NULL;
	info->content_type = NULL;
	info->content_type_dup = NULL;
	info->cookie_data = NULL;
	info->content_length = 0;
	/*
	 * Already freed, and sapi_deactivate() runs again: older releases, such as 8.3.6, leave these
	 * set.
	 */
	info->auth_user = NULL;
	info->auth_password = NULL;
	info->auth_digest = NULL;
	SG(server_context) = NULL;
}

static void deactivate_sapi(void)
{
	php_stream *body = SG(request_info).request_body;

	/* The unread rest of the body is not fetched just to be dropped. */
	SG(post_read) = 1;
	sapi_deactivate();
	maitred_release_body(body);
}

/* Completes the response and drops the state of the request. Returns the response's status. */
static int close_request(void)
{
	int status;

	maitred_add_error_header();
	php_output_end_all();
	end_rewriting();
	end_modules();
	php_output_deactivate();
	status = SG(sapi_headers).http_response_code;
	deactivate_sapi();
	forget_request_info();
	maitred_engine.request = NULL;
	return status;
}

/* Starts an empty request, whose output is dropped. */
static void rest(void)
{
	php_output_activate();
	sapi_activate();
	/* A header comes too late, whatever has been printed, and does no harm. */
	SG(request_info).no_headers = 1;
	SG(sapi_started) = 1;
}

/* Not during another request: a stream filter of the script runs its code when it is closed. */
static void end_body(void)
{
	php_stream *body = SG(request_info).request_body;

	SG(request_info).request_body = NULL;
	maitred_release_body(body);
}

/*
 * The state that the script has started since the last response belongs to that visitor, as its
 * cookies do: the next request must not see it, and an open session would stay locked as long as no
 * request arrives. May throw.
 */
static void end_rest(void)
{
	php_output_discard_all();
	end_rewriting();
	maitred_end_session();
	end_body();
	maitred_empty_superglobals();
}

static void open_request(const struct maitred_request *request)
{
	zval error_handler;

	php_output_deactivate();
	deactivate_sapi();
	maitred_begin(request);
	maitred_engine.requests++;
	maitred_reset_peak_memory();
	maitred_fill_request_info(request);
	php_output_activate();
	maitred_forget_last_error();
	PG(in_error_log) = 0;
	PG(header_is_being_sent) = 0;
	PG(connection_status) = PHP_CONNECTION_NORMAL;
	PG(in_user_include) = 0;
	/* As before any other script, no handler of the script hears of a request that is malformed. */
	ZVAL_COPY_VALUE(&error_handler, &EG(user_error_handler));
	ZVAL_UNDEF(&EG(user_error_handler));
	sapi_activate();
	if (PG(expose_php)) {
		sapi_add_header(SAPI_PHP_VERSION_HEADER, sizeof(SAPI_PHP_VERSION_HEADER) - 1, 1);
	}
	start_buffers();
	maitred_renew_superglobals();
	ZVAL_COPY_VALUE(&EG(user_error_handler), &error_handler);
	start_modules();
	php_clear_stat_cache(0, NULL, 0);
	SG(sapi_started) = 1;
	/* A request that has called mt_srand() must not be able to predict the next request's numbers. */
	maitred_reseed();
	maitred_limits_begin();
}

/* No directives of a request are applied in the empty requests either. */
bool maitred_worker_is_booted(void)
{
	return worker.booted;
}

/*
 * Disables opcache_reset(): OPcache drops nothing while it is in use, which a worker does for its
 * whole life, and until then it would cache nothing more.
 */
static ZEND_FUNCTION(keep_cache)
{
	ZEND_PARSE_PARAMETERS_NONE();
	php_error_docref(NULL, E_WARNING,
		"A worker keeps its code; reload the pool (maitred reload) for new code");
	RETURN_FALSE;
}

static void keep_cache(void)
{
	zend_function *reset = zend_hash_str_find_ptr(CG(function_table), ZEND_STRL("opcache_reset"));

	if (reset && reset->type == ZEND_INTERNAL_FUNCTION) {
		reset->internal_function.handler = ZEND_FN(keep_cache);
	}
}

/*
 * The script has ended within a request, for example by exit(). Nothing that earlier requests have
 * registered writes to this one's response or finds its variables, nor does a destructor of theirs.
 */
int maitred_complete_response(void)
{
	volatile int status = 0;
	volatile bool has_left = false;

	/* Without `boot` this is a copy of maitred_snapshot(): all before that is of the boot. */
	if (EXPECTED(!worker.in_request || !worker.boot || !worker.has_served)) {
		return 0;
	}
	maitred_call_functions_of_request();
	zend_try {
		/* As php_request_shutdown(): what is buffered takes more memory to be sent. */
		if (CG(unclean_shutdown) && PG(last_error_type) == E_ERROR
			&& (size_t) PG(memory_limit) < zend_memory_usage(true)) {
			php_output_discard_all();
		}
		status = close_request();
		/* What earlier requests have left to run may take long: the client need not wait for it. */
		maitred_engine.callbacks->flush(maitred_worker_exchange());
		rest();
		maitred_empty_superglobals();
		has_left = true;
		/* As for the end of a loop. A fatal error may have left no memory for it. */
		if (!CG(unclean_shutdown)) {
			maitred_renew_superglobals();
		}
	} zend_end_try();
	if (UNEXPECTED(!has_left)) {
		zend_objects_store_mark_destructed(&EG(objects_store));
		php_free_shutdown_functions();
	}
	return status;
}

/* After the boot's startup: a disconnecting client is no reason to end the worker. */
void maitred_worker_starts(void)
{
	zend_string *name = zend_string_init(ZEND_STRL("ignore_user_abort"), 0);

	if (maitred_engine.boots) {
		zend_string_release(name);
		return;
	}
	keep_cache();
	zend_alter_ini_entry_chars(name, "1", 1, PHP_INI_USER, PHP_INI_STAGE_RUNTIME);
	zend_string_release(name);
}

void maitred_worker_leaves(void)
{
	worker.boot = NULL;
	maitred_engine.works = false;
}

void *maitred_worker_exchange(void)
{
	return worker.boot->exchange;
}

/* Whether the callback's exception ends the script: exit() and the like. */
static bool ends_script(void)
{
	if (EXPECTED(!EG(exception))) {
		return false;
	}
	if (zend_is_unwind_exit(EG(exception)) || zend_is_graceful_exit(EG(exception))) {
		return true;
	}
	zend_exception_error(EG(exception), E_ERROR);
	return false;
}

static void answered(int status)
{
	struct maitred_served served = {
		.outcome = MAITRED_FINISHED,
		.response_status = status,
		.client_gone = maitred_engine.client_gone,
		.renew = maitred_engine.renew,
		.peak_memory = zend_memory_peak_usage(1),
		.cache_full = maitred_cache_is_full() || maitred_engine.booted_full,
	};

	worker.in_request = false;
	worker.has_served = true;
	maitred_engine.callbacks->answered(worker.boot->exchange, &served);
}

/*
 * Logs why the worker cannot stay within memory_limit: a request that had raised the limit has left
 * data behind.
 */
static void tell_what_is_held(void)
{
	char message[160];

	snprintf(message, sizeof(message),
		"the worker script keeps %zu bytes and memory_limit is %zu: this worker ends, another boots",
		zend_memory_usage(true), (size_t) PG(memory_limit));
	maitred_log(MAITRED_NOTICE, message);
}

/* NULL: the script is to end. */
static const struct maitred_request *next_request(void)
{
	const struct maitred_request *request;

	maitred_limits_rest();
	/* Waiting is not limited; after a response, the script's work counts for the request before. */
	zend_unset_timeout();
	/* Checked only here: by now the script may have freed the request's data. */
	if (UNEXPECTED(!maitred_limit_memory())) {
		tell_what_is_held();
		return NULL;
	}
	request = maitred_engine.callbacks->next(worker.boot->exchange);
	if (!request && maitred_engine.boots) {
		request = maitred_await_copy();
	}
	return request;
}

static PHP_FUNCTION(frankenphp_handle_request)
{
	zend_fcall_info call;
	zend_fcall_info_cache cache;
	const struct maitred_request *request;
	zval result;

	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_FUNC(call, cache)
	ZEND_PARSE_PARAMETERS_END();
	if (!worker.boot || worker.in_request) {
		zend_throw_exception(spl_ce_RuntimeException,
			worker.boot ? "frankenphp_handle_request() called while a request is handled"
				: "frankenphp_handle_request() called while not in worker mode", 0);
		RETURN_THROWS();
	}
	if (!worker.booted) {
		worker.booted = true;
		worker.look = zend_hash_str_find_ptr(EG(function_table), ZEND_STRL(LOOK));
		maitred_shutdown_functions_of_boot();
		close_request();
		rest();
	}
	end_rest();
	if (UNEXPECTED(EG(exception))) {
		RETURN_THROWS();
	}
	if (UNEXPECTED(worker.look)) {
		zend_call_known_function(worker.look, NULL, NULL, &result, 0, NULL, NULL);
		zval_ptr_dtor(&result);
		/* It would go unnoticed while the worker waits. */
		if (EG(exception)) {
			RETURN_THROWS();
		}
	}
	request = next_request();
	if (!request) {
		/* What the script does at its end may use them. */
		maitred_renew_superglobals();
		/* The end of the script may take as long as a request. */
		zend_set_timeout(INI_INT("max_execution_time"), 0);
		RETURN_FALSE;
	}
	worker.in_request = true;
	maitred_shutdown_functions_of_earlier();
	open_request(request);
	ZVAL_UNDEF(&result);
	call.retval = &result;
	call.params = NULL;
	call.param_count = 0;
	if (EXPECTED(!maitred_engine.body_is_cut)) {
		zend_call_function(&call, &cache);
		zval_ptr_dtor(&result);
	}
	/* With exit() the request ends like any other, after the script. */
	if (ends_script()) {
		return;
	}
	/* So does that of a copy: a warm-up request of the boot has called maitred_snapshot(). */
	if (UNEXPECTED(!worker.boot)) {
		RETURN_FALSE;
	}
	int status = close_request();
	rest();
	maitred_limits_end();
	answered(status);
	if (EG(exception)) {
		RETURN_THROWS();
	}
	RETURN_TRUE;
}

static void add_response_header(zval *list, const sapi_header_struct *header)
{
	const char *colon = memchr(header->header, ':', header->header_len);
	const char *end = header->header + header->header_len;
	const char *value;
	size_t length;

	if (!colon) {
		return;
	}
	length = (size_t) (colon - header->header);
	while (length > 0 && (header->header[length - 1] == ' ' || header->header[length - 1] == '\t')) {
		length--;
	}
	for (value = colon + 1; value < end && (*value == ' ' || *value == '\t'); value++) {
	}
	if (length > 0) {
		add_assoc_stringl_ex(list, header->header, length, (char *) value, (size_t) (end - value));
	}
}

static PHP_FUNCTION(frankenphp_response_headers)
{
	zend_llist_position position;
	zend_llist *headers = &SG(sapi_headers).headers;

	ZEND_PARSE_PARAMETERS_NONE();
	array_init(return_value);
	for (sapi_header_struct *header = zend_llist_get_first_ex(headers, &position); header;
		header = zend_llist_get_next_ex(headers, &position)) {
		add_response_header(return_value, header);
	}
}

static int level_of(zend_long level)
{
	if (level >= LEVEL_ERROR) {
		return MAITRED_ERROR;
	}
	if (level >= LEVEL_WARN) {
		return MAITRED_WARNING;
	}
	return level >= LEVEL_INFO ? MAITRED_NOTICE : MAITRED_DEBUG;
}

/* The context follows the message as JSON. */
static PHP_FUNCTION(frankenphp_log)
{
	zend_string *message;
	zend_long level = LEVEL_INFO;
	zval *context = NULL;
	smart_str line = { 0 };

	ZEND_PARSE_PARAMETERS_START(1, 3)
		Z_PARAM_STR(message)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(level)
		Z_PARAM_ARRAY(context)
	ZEND_PARSE_PARAMETERS_END();
	smart_str_append(&line, message);
	if (context && zend_hash_num_elements(Z_ARRVAL_P(context)) > 0) {
		smart_str_appendc(&line, ' ');
		php_json_encode(&line, context, PHP_JSON_UNESCAPED_SLASHES | PHP_JSON_PARTIAL_OUTPUT_ON_ERROR);
	}
	smart_str_0(&line);
	maitred_log(level_of(level), line.s ? ZSTR_VAL(line.s) : "");
	smart_str_free(&line);
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_handle_request, 0, 1, _IS_BOOL, 0)
	ZEND_ARG_TYPE_INFO(0, callback, IS_CALLABLE, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_finish_request, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_request_headers, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_MASK_EX(arginfo_response_headers, 0, 0, MAY_BE_ARRAY | MAY_BE_BOOL)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_log, 0, 1, IS_VOID, 0)
	ZEND_ARG_TYPE_INFO(0, message, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, level, IS_LONG, 0, "0")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, context, IS_ARRAY, 0, "[]")
ZEND_END_ARG_INFO()

static const zend_function_entry functions[] = {
	PHP_FE(frankenphp_handle_request, arginfo_handle_request)
	ZEND_FALIAS(frankenphp_finish_request, fastcgi_finish_request, arginfo_finish_request)
	ZEND_FALIAS(frankenphp_request_headers, apache_request_headers, arginfo_request_headers)
	PHP_FE(frankenphp_response_headers, arginfo_response_headers)
	PHP_FE(frankenphp_log, arginfo_log)
	PHP_FE_END
};

/* As under other servers with workers that boot. */
static const zend_function_entry of_booted_modes[] = {
	PHP_FALIAS(apache_response_headers, frankenphp_response_headers, arginfo_response_headers)
	PHP_FE_END
};

void maitred_register_response_headers(void)
{
	zend_register_functions(NULL, of_booted_modes, NULL, MODULE_PERSISTENT);
}

void maitred_register_worker_functions(int module_number)
{
	static const struct {
		const char *name;
		zend_long level;
	} levels[] = {
		{ "FRANKENPHP_LOG_LEVEL_DEBUG", LEVEL_DEBUG },
		{ "FRANKENPHP_LOG_LEVEL_INFO", LEVEL_INFO },
		{ "FRANKENPHP_LOG_LEVEL_WARN", LEVEL_WARN },
		{ "FRANKENPHP_LOG_LEVEL_ERROR", LEVEL_ERROR },
	};

	zend_register_functions(NULL, functions, NULL, MODULE_PERSISTENT);
	for (size_t i = 0; i < sizeof(levels) / sizeof(*levels); i++) {
		zend_register_long_constant(levels[i].name, strlen(levels[i].name), levels[i].level,
			CONST_PERSISTENT, module_number);
	}
}

void maitred_php_work(const struct maitred_request *boot, struct maitred_worked *worked)
{
	memset(worked, 0, sizeof(*worked));
	worker.boot = boot;
	maitred_engine.works = true;
	maitred_run(boot, &worked->last);
	worked->booted = worker.booted;
	worked->in_hand = worker.in_request;
}
