/* $_SERVER, $_ENV, getenv(): the request's variables over the process's, as in php-fpm. */
#include "engine.h"

#include <string.h>

static void (*import_process_environment)(zval *variables);

const struct maitred_param *maitred_param_named(const char *name, size_t name_length)
{
	const struct maitred_request *request = maitred_engine.request;

	if (!request) {
		return NULL;
	}
	/* Of two variables with one name the later counts. */
	for (size_t i = request->param_count; i > 0; i--) {
		const struct maitred_param *param = &request->params[i - 1];
		if (param->name_length == name_length && memcmp(param->name, name, name_length) == 0) {
			return param;
		}
	}
	return NULL;
}

char *maitred_getenv(const char *name, size_t name_length)
{
	const struct maitred_param *param;

	if (!maitred_engine.request) {
		return getenv(name);
	}
	param = maitred_param_named(name, name_length);
	return param ? (char *) param->value : NULL;
}

char *maitred_read_cookies(void)
{
	return maitred_engine.request ? (char *) maitred_engine.request->cookie : NULL;
}

/* getenv() without a name: unfiltered. */
static void load_environment(zval *variables)
{
	const struct maitred_request *request = maitred_engine.request;

	import_process_environment(variables);
	for (size_t i = 0; request && i < request->param_count; i++) {
		const struct maitred_param *param = &request->params[i];
		php_register_variable_safe(param->name, param->value, param->value_length, variables);
	}
}

/* $_ENV and $_SERVER have the same content; the second one to be used is a copy of the first. */
static bool copy_filled(zval *variables, int track)
{
	zval *filled = &PG(http_globals)[track];

	if (Z_TYPE_P(filled) != IS_ARRAY || Z_ARR_P(filled) == Z_ARR_P(variables)
		|| zend_hash_num_elements(Z_ARR_P(filled)) == 0) {
		return false;
	}
	zend_array_destroy(Z_ARR_P(variables));
	Z_ARR_P(variables) = zend_array_dup(Z_ARR_P(filled));
	return true;
}

/* ext/filter registers the variable itself, and keeps the raw one for filter_input(). */
static void register_filtered(
	int kind, const char *name, const char *value, size_t length, zval *variables)
{
	char *text = (char *) value;
	size_t filtered_length = length;

	if (sapi_module.input_filter(kind, name, &text, length, &filtered_length)) {
		php_register_variable_safe(name, text, filtered_length, variables);
	}
}

static void import_environment(zval *variables)
{
	const struct maitred_request *request = maitred_engine.request;
	zval *env = &PG(http_globals)[TRACK_VARS_ENV];
	int kind;

	/* A worker script keeps $_ENV from one request to the next. */
	if (!maitred_engine.works
		&& (copy_filled(variables, TRACK_VARS_ENV) || copy_filled(variables, TRACK_VARS_SERVER))) {
		return;
	}
	if (Z_TYPE_P(env) == IS_ARRAY && Z_ARR_P(variables) == Z_ARR_P(env)) {
		kind = PARSE_ENV;
	} else {
		kind = PARSE_SERVER;
	}
	import_process_environment(variables);
	if (kind == PARSE_ENV && maitred_engine.works) {
		return;
	}
	for (size_t i = 0; request && i < request->param_count; i++) {
		const struct maitred_param *param = &request->params[i];
		register_filtered(kind, param->name, param->value, param->value_length, variables);
	}
}

void maitred_hook_environment(void)
{
	import_process_environment = php_import_environment_variables;
	php_import_environment_variables = import_environment;
	maitred_hook_getenv(load_environment);
}

void maitred_register_variables(zval *variables)
{
	const struct maitred_request *request = maitred_engine.request;
	const char *name = SG(request_info).request_uri ? SG(request_info).request_uri : "";
	const char *info = "";
	size_t name_length = strlen(name);
	size_t info_length;
	char *php_self;

	php_import_environment_variables(variables);
	if (maitred_engine.works) {
		/* Applications detect the mode by it. */
		php_register_variable("FRANKENPHP_WORKER", "1", variables);
	}
	if (maitred_engine.directives.fix_pathinfo && request && request->path_info) {
		info = request->path_info;
	}
	info_length = strlen(info);
	php_self = emalloc(name_length + info_length + 1);
	memcpy(php_self, name, name_length);
	memcpy(php_self + name_length, info, info_length + 1);
	register_filtered(PARSE_SERVER, "PHP_SELF", php_self, name_length + info_length, variables);
	efree(php_self);
}
