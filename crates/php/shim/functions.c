/* The module `cgi-fcgi`: its directives, and the functions that php-fpm offers to scripts. */
#include "engine.h"
#include "metrics.h"

#include <ext/json/php_json.h>
#include <ext/standard/info.h>
#include <zend_system_id.h>

#define SWITCH(name, value, when, field) \
	STD_PHP_INI_BOOLEAN(name, value, when, OnUpdateBool, directives.field, \
		struct maitred_engine, maitred_engine)
#define TEXT(name, when, field) \
	STD_PHP_INI_ENTRY(name, NULL, when, OnUpdateString, directives.field, \
		struct maitred_engine, maitred_engine)

PHP_INI_BEGIN()
	SWITCH("cgi.rfc2616_headers", "0", PHP_INI_ALL, rfc2616_headers)
	SWITCH("cgi.nph", "0", PHP_INI_ALL, nph)
#if PHP_VERSION_ID < 80500
	SWITCH("cgi.force_redirect", "1", PHP_INI_SYSTEM, force_redirect)
	TEXT("cgi.redirect_status_env", PHP_INI_SYSTEM, redirect_status_env)
#endif
	SWITCH("cgi.fix_pathinfo", "1", PHP_INI_SYSTEM, fix_pathinfo)
	SWITCH("cgi.discard_path", "0", PHP_INI_SYSTEM, discard_path)
	SWITCH("fastcgi.logging", "1", PHP_INI_SYSTEM, logging)
#if PHP_VERSION_ID >= 80500
	SWITCH("fastcgi.script_path_encoded", "1", PHP_INI_SYSTEM, script_path_encoded)
#endif
	TEXT("fastcgi.error_header", PHP_INI_SYSTEM, error_header)
	TEXT("fpm.config", PHP_INI_SYSTEM, fpm_config)
PHP_INI_END()

static void register_functions_of_mode(int module_number);

static PHP_MINIT_FUNCTION(maitred)
{
	(void) type;
	REGISTER_INI_ENTRIES();
	maitred_cache_hook();
	register_functions_of_mode(module_number);
	return SUCCESS;
}

static PHP_MSHUTDOWN_FUNCTION(maitred)
{
	(void) type;
	UNREGISTER_INI_ENTRIES();
	return SUCCESS;
}

/* Runs after the script's shutdown functions: an unread body is not fetched just to be dropped. */
static PHP_RSHUTDOWN_FUNCTION(maitred)
{
	(void) type;
	(void) module_number;
	SG(post_read) = 1;
	return SUCCESS;
}

static PHP_MINFO_FUNCTION(maitred)
{
	php_info_print_table_start();
	php_info_print_table_row(2, maitred_engine.fpm ? "php-fpm" : "maitred", "active");
	php_info_print_table_end();
	DISPLAY_INI_ENTRIES();
}

PHP_FUNCTION(fastcgi_finish_request)
{
	if (zend_parse_parameters_none() == FAILURE) {
		RETURN_THROWS();
	}
	if (!maitred_engine.request || maitred_engine.finished) {
		RETURN_FALSE;
	}
	php_output_end_all();
	php_header();
	maitred_finish();
	/* The script continues: the client must not wait for it. */
	maitred_engine.callbacks->flush(maitred_engine.request->exchange);
	RETURN_TRUE;
}

/* As FrankenPHP's, which Symfony and others look for. */
static PHP_FUNCTION(headers_send)
{
	zend_long status = 200;

	ZEND_PARSE_PARAMETERS_START(0, 1)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(status)
	ZEND_PARSE_PARAMETERS_END();
	if (status < 100 || status > 999) {
		zend_argument_value_error(1, "must be from 100 to 999");
		RETURN_THROWS();
	}
	if (status == 103) {
		RETURN_LONG(maitred_send_hints());
	}
	if (status < 200 || SG(headers_sent)) {
		/* The server itself sends 100 and 101, if there is a reason. */
		RETURN_LONG(SAPI_HEADER_SEND_FAILED);
	}
	SG(sapi_headers).http_response_code = (int) status;
	maitred_flush(NULL);
	RETURN_LONG(SAPI_HEADER_SENT_SUCCESSFULLY);
}

/* Purges pages by tags or URLs, and waits for the result. */
static void purge(INTERNAL_FUNCTION_PARAMETERS, bool urls)
{
	static const char *const why[] = {
		[MAITRED_PURGE_UNHEARD] = "The server has not confirmed the purge",
		[MAITRED_PURGE_NO_CACHE] = "No site of this pool has a cache",
		[MAITRED_PURGE_NOT_ITS] = "A URL belongs to no site of this pool with a cache",
		[MAITRED_PURGE_TOO_LONG] = "A name is too long",
	};
	HashTable *names;
	zval *name;
	bool soft = false;
	struct maitred_text *texts;
	size_t count = 0;
	int purged;

	ZEND_PARSE_PARAMETERS_START(1, 2)
		Z_PARAM_ARRAY_HT(names)
		Z_PARAM_OPTIONAL
		Z_PARAM_BOOL(soft)
	ZEND_PARSE_PARAMETERS_END();
	if (!maitred_engine.request) {
		RETURN_FALSE;
	}
	texts = safe_emalloc(zend_hash_num_elements(names) + 1, sizeof(*texts), 0);
	ZEND_HASH_FOREACH_VAL(names, name) {
		ZVAL_DEREF(name);
		if (Z_TYPE_P(name) != IS_STRING) {
			efree(texts);
			zend_argument_type_error(1, "must be an array of strings");
			RETURN_THROWS();
		}
		texts[count].start = Z_STRVAL_P(name);
		texts[count].length = Z_STRLEN_P(name);
		count++;
	} ZEND_HASH_FOREACH_END();
	purged = maitred_engine.callbacks->purge(
		maitred_engine.request->exchange, urls, soft, texts, count);
	efree(texts);
	if (purged == MAITRED_PURGED) {
		RETURN_TRUE;
	}
	php_error_docref(NULL, E_WARNING, "%s", why[purged]);
	RETURN_FALSE;
}

static PHP_FUNCTION(maitred_cache_purge_tags)
{
	purge(INTERNAL_FUNCTION_PARAM_PASSTHRU, false);
}

static PHP_FUNCTION(maitred_cache_purge_urls)
{
	purge(INTERNAL_FUNCTION_PARAM_PASSTHRU, true);
}

PHP_FUNCTION(apache_request_headers)
{
	const struct maitred_request *request = maitred_engine.request;

	if (zend_parse_parameters_none() == FAILURE) {
		RETURN_THROWS();
	}
	array_init(return_value);
	for (size_t i = 0; request && i < request->param_count; i++) {
		const struct maitred_param *param = &request->params[i];
		sapi_add_request_header(
			param->name, (unsigned int) param->name_length, (char *) param->value,
			(unsigned int) param->value_length, return_value);
	}
}

static PHP_FUNCTION(fpm_get_status)
{
	const char *status;

	if (zend_parse_parameters_none() == FAILURE) {
		RETURN_THROWS();
	}
	if (!maitred_engine.request) {
		RETURN_FALSE;
	}
	status = maitred_engine.callbacks->status(maitred_engine.request->exchange);
	if (!status) {
		RETURN_FALSE;
	}
	php_json_decode_ex(
		return_value, status, strlen(status), PHP_JSON_OBJECT_AS_ARRAY,
		PHP_JSON_PARSER_DEFAULT_DEPTH);
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_bool, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_array, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_MASK_EX(arginfo_array_or_false, 0, 0, MAY_BE_ARRAY | MAY_BE_FALSE)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_headers_send, 0, 0, IS_LONG, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, status, IS_LONG, 0, "200")
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_purge_tags, 0, 1, _IS_BOOL, 0)
	ZEND_ARG_TYPE_INFO(0, tags, IS_ARRAY, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, soft, _IS_BOOL, 0, "false")
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_purge_urls, 0, 1, _IS_BOOL, 0)
	ZEND_ARG_TYPE_INFO(0, urls, IS_ARRAY, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, soft, _IS_BOOL, 0, "false")
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_before_request_read, 0, 1, _IS_BOOL, 0)
	ZEND_ARG_TYPE_INFO(0, callback, IS_CALLABLE, 0)
ZEND_END_ARG_INFO()

static const zend_function_entry functions[] = {
	PHP_FE(fastcgi_finish_request, arginfo_bool)
	PHP_FE(apache_request_headers, arginfo_array)
	PHP_FALIAS(getallheaders, apache_request_headers, arginfo_array)
	PHP_FE(fpm_get_status, arginfo_array_or_false)
	PHP_FE(headers_send, arginfo_headers_send)
	PHP_FE(maitred_cache_purge_tags, arginfo_purge_tags)
	PHP_FE(maitred_cache_purge_urls, arginfo_purge_urls)
	MAITRED_METRIC_FUNCTIONS
	PHP_FE_END
};

static const zend_function_entry snapshot_functions[] = {
	PHP_FE(maitred_snapshot, arginfo_bool)
	PHP_FE(maitred_before_request_read, arginfo_before_request_read)
	PHP_FE_END
};

/*
 * Applications detect the mode by the functions that exist, so each function exists only where it
 * works. OPcache evaluates function_exists() at compile time: scripts in its file cache
 * (opcache.file_cache) must not be shared between modes.
 */
static void register_functions_of_mode(int module_number)
{
	/* php-fpm has none of them. */
	if (maitred_engine.fpm || maitred_engine.mode == MAITRED_CLASSIC) {
		return;
	}
	maitred_register_response_headers();
	zend_add_system_entropy("maitred", "mode", &maitred_engine.mode, sizeof(maitred_engine.mode));
	maitred_register_worker_functions(module_number);
	if (maitred_engine.mode == MAITRED_SNAPSHOT) {
		zend_register_functions(NULL, snapshot_functions, NULL, MODULE_PERSISTENT);
		maitred_reads_start();
	}
}

zend_module_entry maitred_module_entry = {
	STANDARD_MODULE_HEADER,
	"cgi-fcgi",
	functions,
	PHP_MINIT(maitred),
	PHP_MSHUTDOWN(maitred),
	NULL,
	PHP_RSHUTDOWN(maitred),
	PHP_MINFO(maitred),
	PHP_VERSION,
	STANDARD_MODULE_PROPERTIES
};
