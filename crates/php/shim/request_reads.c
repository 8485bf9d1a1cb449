/*
 * The reads of its request by a booting script. The boot's request is that of no client, so what
 * depends on it must not be in copies. maitred_before_request_read() registers a callback that is
 * called before each such read, and may call maitred_snapshot(): the read itself then takes place
 * in the copies, with their requests.
 *
 * Reads of superglobal variables are opcodes of their own, which are intercepted. The functions
 * below read a request, or return what differs from one request to the next.
 */
#include "engine.h"

#include <string.h>

/* Without the dollar sign, as in the symbol table. */
static const char *const variables[] = { "_COOKIE", "_ENV", "_FILES", "_GET", "_POST", "_REQUEST",
	"_SERVER" };

static const zend_uchar fetches[] = { ZEND_FETCH_R, ZEND_FETCH_W, ZEND_FETCH_RW, ZEND_FETCH_IS,
	ZEND_FETCH_FUNC_ARG, ZEND_FETCH_UNSET, ZEND_ISSET_ISEMPTY_VAR, ZEND_UNSET_VAR };

#define BODY_STREAM "php://input"

static const char *const functions[] = {
	/* the request */
	"apache_request_headers", "filter_has_var", "filter_input", "filter_input_array",
	"frankenphp_request_headers", "getallheaders", "getenv", "is_uploaded_file",
	"move_uploaded_file", "request_parse_body", "session_id", "session_start",
	/* its body */
	"copy", "file", "file_get_contents", "fopen", "readfile", "stream_get_contents",
	/* the time */
	"date", "date_create", "date_create_from_format", "date_create_immutable",
	"date_create_immutable_from_format", "getdate", "gettimeofday", "gmdate", "gmmktime", "hrtime",
	"idate", "localtime", "microtime", "mktime", "strtotime", "time",
	/* random numbers */
	"array_rand", "gmp_random_bits", "gmp_random_range", "lcg_value", "mt_rand",
	"openssl_pkey_new", "openssl_random_pseudo_bytes", "password_hash", "rand", "random_bytes",
	"random_int", "session_create_id", "shuffle", "sodium_crypto_box_keypair",
	"sodium_crypto_secretbox_keygen", "sodium_crypto_sign_keypair", "str_shuffle", "uniqid",
	"uuid_create"
};
#define FUNCTIONS (sizeof(functions) / sizeof(*functions))

/* The starts of the names of a request's variables in getenv(). */
static const char *const of_requests[] = { "AUTH_TYPE", "CONTENT_", "HTTP", "ORIG_", "PATH_",
	"PHP_", "QUERY_STRING", "REDIRECT_", "REMOTE_", "REQUEST_", "SCRIPT_", "SERVER_" };

static zif_handler functions_before[FUNCTIONS];

/* Their constructors take the time or random numbers, too. */
static const char *const constructed[] = { "datetime", "datetimeimmutable",
	"random\\engine\\mt19937", "random\\engine\\pcgoneseq128xslrr64",
	"random\\engine\\xoshiro256starstar", "random\\randomizer" };
#define CONSTRUCTED (sizeof(constructed) / sizeof(*constructed))

static zif_handler constructors_before[CONSTRUCTED];

static struct {
	bool is_registered;
	bool is_running;
	zend_fcall_info call;
} callback;

static bool watches(void)
{
	return callback.is_registered && maitred_engine.boots && !callback.is_running
		&& !EG(exception);
}

static void forget(void)
{
	if (callback.is_registered) {
		callback.is_registered = false;
		zval_ptr_dtor(&callback.call.function_name);
	}
}

/* Calls the script's callback; false from it is the end of its interest. */
static void report(const char *what, zend_string *key)
{
	zval parameters[2];
	zval result;

	ZVAL_STRING(&parameters[0], what);
	if (key) {
		ZVAL_STR_COPY(&parameters[1], key);
	} else {
		ZVAL_NULL(&parameters[1]);
	}
	ZVAL_UNDEF(&result);
	callback.call.retval = &result;
	callback.call.params = parameters;
	callback.call.param_count = 2;
	callback.is_running = true;
	zend_call_function(&callback.call, NULL);
	callback.is_running = false;
	if (Z_TYPE(result) == IS_FALSE) {
		forget();
	}
	zval_ptr_dtor(&result);
	zval_ptr_dtor(&parameters[0]);
	zval_ptr_dtor(&parameters[1]);
}

static const char *variable_named(const zend_string *name)
{
	for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++) {
		if (!strcmp(ZSTR_VAL(name), variables[i])) {
			return variables[i];
		}
	}
	return NULL;
}

/* The constant key of the element that the next opcode takes from it; NULL: there is none. */
static zend_string *key_after(const zend_op *fetch)
{
	const zend_op *next = fetch + 1;
	bool is_element = next->opcode == ZEND_FETCH_DIM_R || next->opcode == ZEND_FETCH_DIM_IS
		|| next->opcode == ZEND_ISSET_ISEMPTY_DIM_OBJ;
	const zval *key;

	if (!is_element || next->op1_type != fetch->result_type || next->op2_type != IS_CONST
		|| next->op1.var != fetch->result.var) {
		return NULL;
	}
	key = RT_CONSTANT(next, next->op2);
	return Z_TYPE_P(key) == IS_STRING ? Z_STR_P(key) : NULL;
}

static int before_fetch(zend_execute_data *execute_data)
{
	const zend_op *opline = EX(opline);
	const char *name;

	if (!watches() || opline->op1_type != IS_CONST) {
		return ZEND_USER_OPCODE_DISPATCH;
	}
	name = variable_named(Z_STR_P(RT_CONSTANT(opline, opline->op1)));
	if (name) {
		report(name, key_after(opline));
	}
	/* PHP frees the result of an opcode that throws: here still what was in that place before. */
	if (EG(exception) && (opline->result_type & (IS_VAR | IS_TMP_VAR))) {
		ZVAL_UNDEF(EX_VAR(opline->result.var));
	}
	return ZEND_USER_OPCODE_DISPATCH;
}

static const zval *first_argument(zend_execute_data *execute_data)
{
	return ZEND_CALL_NUM_ARGS(execute_data) > 0 ? ZEND_CALL_ARG(execute_data, 1) : NULL;
}

static bool starts_with(const zval *value, const char *start)
{
	return value && Z_TYPE_P(value) == IS_STRING
		&& !strncasecmp(Z_STRVAL_P(value), start, strlen(start));
}

static bool names_a_variable_of_requests(const zval *name)
{
	for (size_t i = 0; i < sizeof(of_requests) / sizeof(*of_requests); i++) {
		if (starts_with(name, of_requests[i])) {
			return true;
		}
	}
	return !name;
}

/* Functions of dates depend on the time only without a date. */
static bool has_date(const char *name, zend_execute_data *execute_data)
{
	uint32_t given = ZEND_CALL_NUM_ARGS(execute_data);

	if (!strcmp(name, "date") || !strcmp(name, "gmdate") || !strcmp(name, "idate")) {
		return given > 1;
	}
	if (!strcmp(name, "mktime") || !strcmp(name, "gmmktime")) {
		return given > 5;
	}
	return !strcmp(name, "localtime") && given > 0;
}

static bool depends_on_request(const char *name, zend_execute_data *execute_data)
{
	static const char *const of_body[] = { "copy", "file", "file_get_contents", "fopen",
		"readfile" };

	if (!strcmp(name, "getenv")) {
		return names_a_variable_of_requests(first_argument(execute_data));
	}
	for (size_t i = 0; i < sizeof(of_body) / sizeof(*of_body); i++) {
		if (!strcmp(name, of_body[i])) {
			return starts_with(first_argument(execute_data), BODY_STREAM);
		}
	}
	return !has_date(name, execute_data);
}

static ZEND_NAMED_FUNCTION(call_intercepted)
{
	const char *name = ZSTR_VAL(execute_data->func->common.function_name);
	zif_handler before = NULL;
	size_t i = 0;

	while (i < FUNCTIONS && strcmp(name, functions[i])) {
		i++;
	}
	/* The callback may take the snapshot, which ends the interception. */
	before = i < FUNCTIONS ? functions_before[i] : NULL;
	if (before && watches() && depends_on_request(name, execute_data)) {
		report(functions[i], NULL);
	}
	if (before && !EG(exception)) {
		before(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	}
}

static ZEND_NAMED_FUNCTION(construct_intercepted)
{
	zend_class_entry *class = execute_data->func->common.scope;
	zif_handler before = NULL;
	size_t i = 0;

	while (i < CONSTRUCTED && strcasecmp(ZSTR_VAL(class->name), constructed[i])) {
		i++;
	}
	before = i < CONSTRUCTED ? constructors_before[i] : NULL;
	if (before && watches()) {
		report(ZSTR_VAL(class->name), NULL);
	}
	if (before && !EG(exception)) {
		before(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	}
}

/* At PHP's startup: scripts that are compiled later have these handlers. */
void maitred_reads_start(void)
{
	for (size_t i = 0; i < sizeof(fetches); i++) {
		zend_set_user_opcode_handler(fetches[i], before_fetch);
	}
}

static void exchange(zend_function *function, zif_handler *before, zif_handler wanted)
{
	if (function && function->type == ZEND_INTERNAL_FUNCTION) {
		*before = function->internal_function.handler;
		function->internal_function.handler = wanted;
	}
}

static zend_function *constructor_of(const char *name)
{
	zend_class_entry *class = zend_hash_str_find_ptr(CG(class_table), name, strlen(name));

	return class ? class->constructor : NULL;
}

static zend_function *function_named(const char *name)
{
	return zend_hash_str_find_ptr(CG(function_table), name, strlen(name));
}

/* They cost something, so they are intercepted only while a script asks for it. */
static void intercept_functions(void)
{
	for (size_t i = 0; i < FUNCTIONS; i++) {
		if (!functions_before[i]) {
			exchange(function_named(functions[i]), &functions_before[i], call_intercepted);
		}
	}
	for (size_t i = 0; i < CONSTRUCTED; i++) {
		if (!constructors_before[i]) {
			exchange(constructor_of(constructed[i]), &constructors_before[i], construct_intercepted);
		}
	}
}

void maitred_reads_end(void)
{
	zif_handler own;

	forget();
	for (size_t i = 0; i < FUNCTIONS; i++) {
		if (functions_before[i]) {
			exchange(function_named(functions[i]), &own, functions_before[i]);
			functions_before[i] = NULL;
		}
	}
	for (size_t i = 0; i < CONSTRUCTED; i++) {
		if (constructors_before[i]) {
			exchange(constructor_of(constructed[i]), &own, constructors_before[i]);
			constructors_before[i] = NULL;
		}
	}
}

PHP_FUNCTION(maitred_before_request_read)
{
	zend_fcall_info call;
	zend_fcall_info_cache cache;

	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_FUNC(call, cache)
	ZEND_PARSE_PARAMETERS_END();
	if (!maitred_engine.boots) {
		RETURN_FALSE;
	}
	forget();
	callback.call = call;
	Z_TRY_ADDREF(callback.call.function_name);
	callback.is_registered = true;
	intercept_functions();
	RETURN_TRUE;
}
