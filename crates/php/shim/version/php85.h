/* PHP 8.5: differences between versions. */
#include <ext/random/php_random.h>
#include <ext/standard/php_standard.h>

static inline int maitred_module_startup(sapi_module_struct *sapi, zend_module_entry *module)
{
	return php_module_startup(sapi, module);
}

/* 8.5 has no disable_classes. */
static inline void maitred_disable_class(const char *name, size_t length)
{
	(void) name;
	(void) length;
}

/* One request must not predict another's numbers: the flags make the next draw seed again. */
static inline void maitred_seed_anew(void)
{
	RANDOM_G(mt19937_seeded) = false;
	RANDOM_G(combined_lcg_seeded) = false;
}

/* php_child_init() renews the heap's shadow key and the timers. */
static inline void maitred_child_start(void)
{
	php_child_init();
	maitred_seed_anew();
}

/* The directives of one request are applied before its body is read, as in php-fpm from 8.5 on. */
static inline void maitred_hook_activation(sapi_module_struct *sapi, int (*activate)(void))
{
	sapi->pre_request_init = activate;
}

/* The peak of a request is its own. */
static inline void maitred_reset_peak_memory(void)
{
	zend_memory_reset_peak_usage();
}

static inline void maitred_hook_getenv(void (*load)(zval *variables))
{
	php_load_environment_variables = load;
}
