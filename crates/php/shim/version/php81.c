/*
 * PHP 8.1: random numbers. lcg_value() and uniqid() draw from a generator whose state is private to
 * PHP and seeded once per process: copies of a process would draw the same numbers.
 */
#include "engine.h"

#if PHP_VERSION_ID < 80200

#include <ext/standard/php_lcg.h>
#include <ext/standard/php_random.h>

/* Length of the time at the start of uniqid()'s result: "%08x%05x". */
#define TIME_LENGTH 13

static zif_handler make_unique_id;

/* More than 0 and less than 1, as php_combined_lcg(). */
static double draw(void)
{
	uint32_t drawn;

	if (php_random_bytes_silent(&drawn, sizeof(drawn)) == FAILURE) {
		return php_combined_lcg();
	}
	return (drawn + 0.5) / ((double) UINT32_MAX + 1);
}

static void lcg_value(INTERNAL_FUNCTION_PARAMETERS)
{
	ZEND_PARSE_PARAMETERS_NONE();
	RETURN_DOUBLE(draw());
}

/* PHP's own, except for the suffix with more entropy. */
static void uniqid(INTERNAL_FUNCTION_PARAMETERS)
{
	char *prefix = "";
	size_t prefix_length;
	bool more = false;
	zend_string *made;

	make_unique_id(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	if (EG(exception)
		|| zend_parse_parameters(ZEND_NUM_ARGS(), "|sb", &prefix, &prefix_length, &more) == FAILURE
		|| !more) {
		return;
	}
	/* A prefix ends at its first NUL there. */
	prefix_length = strlen(prefix);
	made = Z_STR_P(return_value);
	RETVAL_STR(strpprintf(
		0, "%.*s%.8F", (int) prefix_length + TIME_LENGTH, ZSTR_VAL(made), draw() * 10));
	zend_string_release(made);
}

/* Returns the previous handler; NULL: there is none, since the configuration disables it. */
static zif_handler replace(const char *name, zif_handler handler)
{
	zend_internal_function *function =
		zend_hash_str_find_ptr(CG(function_table), name, strlen(name));
	zif_handler replaced = NULL;

	if (function) {
		replaced = function->handler;
		function->handler = handler;
	}
	return replaced;
}

void maitred_hook_draws(void)
{
	replace("lcg_value", lcg_value);
	make_unique_id = replace("uniqid", uniqid);
}

/*
 * Other uses, such as the probability of session garbage collection, continue from an unpredictable
 * state.
 */
void maitred_skip_draws(void)
{
	uint8_t count = 0;

	php_random_bytes_silent(&count, sizeof(count));
	while (count-- > 0) {
		php_combined_lcg();
	}
}
#endif
