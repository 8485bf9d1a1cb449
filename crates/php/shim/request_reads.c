/*
 * The reads of its request by a booting script. The boot's request is that of no client, so what
 * depends on it must not be in copies. maitred_before_request_read() registers a callback that is
 * called before each such read, and may call maitred_snapshot(): the read itself then takes place
 * in the copies, with their requests.
 *
 * Reads of superglobal variables are opcodes of their own, which are intercepted. The functions
 * and methods below read a request, or return what differs from one request to the next.
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
	"copy", "file", "file_get_contents", "fopen", "getimagesize", "hash_file", "hash_hmac_file",
	"hash_update_file", "md5_file", "parse_ini_file", "readfile", "sha1_file",
	"simplexml_load_file", "stream_get_contents",
	/* the time */
	"date", "date_create", "date_create_from_format", "date_create_immutable",
	"date_create_immutable_from_format", "getdate", "gettimeofday", "gmdate", "gmmktime",
	"gmstrftime", "hrtime", "idate", "localtime", "microtime", "mktime", "strftime", "strtotime",
	"time",
	/* the process */
	"getmypid", "posix_getpid",
	/* random numbers */
	"array_rand", "gmp_random_bits", "gmp_random_range", "lcg_value", "mt_rand",
	"openssl_pkey_new", "openssl_random_pseudo_bytes", "password_hash", "rand", "random_bytes",
	"random_int", "session_create_id", "shuffle", "str_shuffle", "uniqid", "uuid_create",
	"sodium_crypto_aead_aegis128l_keygen", "sodium_crypto_aead_aegis256_keygen",
	"sodium_crypto_aead_aes256gcm_keygen", "sodium_crypto_aead_chacha20poly1305_ietf_keygen",
	"sodium_crypto_aead_chacha20poly1305_keygen",
	"sodium_crypto_aead_xchacha20poly1305_ietf_keygen", "sodium_crypto_auth_keygen",
	"sodium_crypto_box_keypair", "sodium_crypto_box_seal", "sodium_crypto_core_ristretto255_random",
	"sodium_crypto_core_ristretto255_scalar_random", "sodium_crypto_generichash_keygen",
	"sodium_crypto_kdf_keygen", "sodium_crypto_kx_keypair", "sodium_crypto_pwhash_str",
	"sodium_crypto_pwhash_scryptsalsa208sha256_str", "sodium_crypto_secretbox_keygen",
	"sodium_crypto_secretstream_xchacha20poly1305_init_push",
	"sodium_crypto_secretstream_xchacha20poly1305_keygen", "sodium_crypto_shorthash_keygen",
	"sodium_crypto_sign_keypair", "sodium_crypto_stream_keygen",
	"sodium_crypto_stream_xchacha20_keygen"
};
#define FUNCTIONS (sizeof(functions) / sizeof(*functions))

/* The starts of the names of a request's variables in getenv(). */
static const char *const of_requests[] = { "AUTH_TYPE", "CONTENT_", "HTTP", "ORIG_", "PATH_",
	"PHP_", "QUERY_STRING", "REDIRECT_", "REMOTE_", "REQUEST_", "SCRIPT_", "SERVER_" };

static zif_handler functions_before[FUNCTIONS];

static struct {
	const char *class;
	const char *name;
	bool is_of_body;
	/* Not forgotten at the end: a class that has inherited the method keeps the intercepted one. */
	zif_handler before;
} methods[] = {
	/* the body */
	{ .class = "domdocument", .name = "load", .is_of_body = true },
	{ .class = "domdocument", .name = "loadhtmlfile", .is_of_body = true },
	{ .class = "simplexmlelement", .name = "__construct", .is_of_body = true },
	{ .class = "splfileobject", .name = "__construct", .is_of_body = true },
	{ .class = "xmlreader", .name = "open", .is_of_body = true },
	/* the time */
	{ .class = "datetime", .name = "__construct" },
	{ .class = "datetime", .name = "createfromformat" },
	{ .class = "datetimeimmutable", .name = "__construct" },
	{ .class = "datetimeimmutable", .name = "createfromformat" },
	/* random numbers */
	{ .class = "random\\engine\\mt19937", .name = "__construct" },
	{ .class = "random\\engine\\pcgoneseq128xslrr64", .name = "__construct" },
	{ .class = "random\\engine\\secure", .name = "generate" },
	{ .class = "random\\engine\\xoshiro256starstar", .name = "__construct" },
	{ .class = "random\\randomizer", .name = "__construct" },
};
#define METHODS (sizeof(methods) / sizeof(*methods))

/* Most characters of the name of a method with its class. */
#define METHOD_NAME_MAX 64

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

/* Also within another name, as in php://filter/resource=php://input. */
static bool names_body(zend_execute_data *execute_data)
{
	for (uint32_t i = 1; i <= ZEND_CALL_NUM_ARGS(execute_data); i++) {
		const zval *given = ZEND_CALL_ARG(execute_data, i);
		if (Z_TYPE_P(given) == IS_STRING && strcasestr(Z_STRVAL_P(given), BODY_STREAM)) {
			return true;
		}
	}
	return false;
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

	if (!strcmp(name, "date") || !strcmp(name, "gmdate") || !strcmp(name, "idate")
		|| !strcmp(name, "strftime") || !strcmp(name, "gmstrftime")) {
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
		"getimagesize", "hash_file", "hash_hmac_file", "hash_update_file", "md5_file",
		"parse_ini_file", "readfile", "sha1_file", "simplexml_load_file" };

	if (!strcmp(name, "getenv")) {
		return names_a_variable_of_requests(first_argument(execute_data));
	}
	for (size_t i = 0; i < sizeof(of_body) / sizeof(*of_body); i++) {
		if (!strcmp(name, of_body[i])) {
			return names_body(execute_data);
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

static void report_method(zend_function *method)
{
	const char *class = ZSTR_VAL(method->common.scope->name);
	char name[METHOD_NAME_MAX];

	if (method->common.fn_flags & ZEND_ACC_CTOR) {
		report(class, NULL);
		return;
	}
	snprintf(name, sizeof(name), "%s::%s", class, ZSTR_VAL(method->common.function_name));
	report(name, NULL);
}

static ZEND_NAMED_FUNCTION(call_intercepted_method)
{
	zend_function *called = execute_data->func;
	zif_handler before = NULL;
	size_t i = 0;

	while (i < METHODS && (strcasecmp(ZSTR_VAL(called->common.scope->name), methods[i].class)
		|| strcasecmp(ZSTR_VAL(called->common.function_name), methods[i].name))) {
		i++;
	}
	before = i < METHODS ? methods[i].before : NULL;
	if (before && watches() && (!methods[i].is_of_body || names_body(execute_data))) {
		report_method(called);
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

static zend_function *method_at(size_t position)
{
	const char *class_name = methods[position].class;
	const char *name = methods[position].name;
	zend_class_entry *class = zend_hash_str_find_ptr(CG(class_table), class_name,
		strlen(class_name));

	return class ? zend_hash_str_find_ptr(&class->function_table, name, strlen(name)) : NULL;
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
	for (size_t i = 0; i < METHODS; i++) {
		if (!methods[i].before) {
			exchange(method_at(i), &methods[i].before, call_intercepted_method);
		}
	}
}

/*
 * A boot ends once, so nothing is intercepted again. Closures of functions that the boot has made
 * keep the handler that intercepts, which still needs the function's own one.
 */
void maitred_reads_end(void)
{
	zif_handler own;

	forget();
	for (size_t i = 0; i < FUNCTIONS; i++) {
		if (functions_before[i]) {
			exchange(function_named(functions[i]), &own, functions_before[i]);
		}
	}
	for (size_t i = 0; i < METHODS; i++) {
		if (methods[i].before) {
			exchange(method_at(i), &own, methods[i].before);
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
