/* PHP 8.2 and later: differences between versions. */
#include <ext/random/php_random.h>
#include <ext/standard/php_standard.h>

static inline int maitred_module_startup(sapi_module_struct *sapi, zend_module_entry *module)
{
	return php_module_startup(sapi, module);
}

static inline void maitred_disable_class(const char *name, size_t length)
{
#if PHP_VERSION_ID < 80500
	zend_disable_class(name, length);
#else
	/* 8.5 has no disable_classes. */
	(void) name;
	(void) length;
#endif
}

/* One request must not predict another's numbers: the flags make the next draw seed again. */
static inline void maitred_reseed(void)
{
	RANDOM_G(mt19937_seeded) = false;
	RANDOM_G(combined_lcg_seeded) = false;
}

/* Forked children must not draw the same numbers. */
static inline void maitred_child_start(void)
{
#if PHP_VERSION_ID >= 80500
	/* Renews the heap's shadow key and the timers. */
	php_child_init();
#endif
	maitred_reseed();
}

static inline void maitred_hook_activation(sapi_module_struct *sapi, int (*activate)(void))
{
#if PHP_VERSION_ID < 80500
	/* The directives of one request are applied when the SAPI is activated. */
	sapi->activate = activate;
#else
	/* … before its body is read, as in php-fpm from 8.5 on. */
	sapi->pre_request_init = activate;
#endif
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
