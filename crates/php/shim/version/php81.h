/* PHP 8.1: differences between versions. */
#include <ext/standard/basic_functions.h>
#include <ext/standard/php_standard.h>

/* See php81.c. */
void maitred_hook_draws(void);
void maitred_skip_draws(void);

static inline int maitred_module_startup(sapi_module_struct *sapi, zend_module_entry *module)
{
	int started = php_module_startup(sapi, module, 1);

	if (started == SUCCESS) {
		maitred_hook_draws();
	}
	return started;
}

static inline void maitred_disable_class(const char *name, size_t length)
{
	zend_disable_class(name, length);
}

/* One request must not predict another's numbers: the flag makes the next draw seed again. */
static inline void maitred_reseed(void)
{
	BG(mt_rand_is_seeded) = 0;
	maitred_skip_draws();
}

/* Forked children must not draw the same numbers. */
static inline void maitred_child_start(void)
{
	maitred_reseed();
}

/* The directives of one request are applied when the SAPI is activated. */
static inline void maitred_hook_activation(sapi_module_struct *sapi, int (*activate)(void))
{
	sapi->activate = activate;
}

/* 8.1 counts the peak since the script started. */
static inline void maitred_reset_peak_memory(void)
{
}

/* In 8.1, getenv() without a name calls php_import_environment_variables(). */
static inline void maitred_hook_getenv(void (*load)(zval *variables))
{
	(void) load;
}
