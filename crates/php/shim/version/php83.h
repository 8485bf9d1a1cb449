/* PHP 8.3: what other versions spell differently. */
#include <ext/random/php_random.h>
#include <ext/standard/php_standard.h>

static inline int maitred_module_startup(sapi_module_struct *sapi, zend_module_entry *module)
{
	return php_module_startup(sapi, module);
}

static inline void maitred_disable_class(const char *name, size_t length)
{
	zend_disable_class(name, length);
}

/* Nobody must foresee what another draws: the flags make the next draw seed anew. */
static inline void maitred_seed_anew(void)
{
	RANDOM_G(mt19937_seeded) = false;
	RANDOM_G(combined_lcg_seeded) = false;
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

/* The most memory of a request is that of its own. */
static inline void maitred_reset_peak_memory(void)
{
	zend_memory_reset_peak_usage();
}

static inline void maitred_hook_getenv(void (*load)(zval *variables))
{
	php_load_environment_variables = load;
}
