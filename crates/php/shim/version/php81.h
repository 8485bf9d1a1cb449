/* PHP 8.1: what other versions spell differently. */
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

/* Nobody must foresee what another draws: the flag makes the next draw seed anew. */
static inline void maitred_seed_anew(void)
{
	BG(mt_rand_is_seeded) = 0;
	maitred_skip_draws();
}

/* Forked children must not draw the same numbers. */
static inline void maitred_child_start(void)
{
	maitred_seed_anew();
}

/* The directives of one request are set when the SAPI is activated. */
static inline void maitred_hook_activation(sapi_module_struct *sapi, int (*activate)(void))
{
	sapi->activate = activate;
}

/* 8.1 counts the most memory since the script began. */
static inline void maitred_reset_peak_memory(void)
{
}

/* getenv() without a name asks php_import_environment_variables() in 8.1. */
static inline void maitred_hook_getenv(void (*load)(zval *variables))
{
	(void) load;
}
