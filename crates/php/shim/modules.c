/* PHP's modules, functions and classes: those that are left out or disabled. */
#include "engine.h"

#include <string.h>
#include <strings.h>
#include <sys/prctl.h>

#include <zend_API.h>

/* Absent in php-fpm; enabled if this entry of php.ini says so. */
#define PCNTL_SWITCH "maitred.pcntl"

/* The process still has to change its root, and has the capability to do so. */
#define CHROOT_LATER "maitred.chroot"

/* Directives of OPcache, and the entries with their minimum. */
static const char *const raised[][2] = {
	{ "opcache.memory_consumption", "maitred.opcache.memory_consumption" },
	{ "opcache.interned_strings_buffer", "maitred.opcache.interned_strings_buffer" },
	{ "opcache.max_accelerated_files", "maitred.opcache.max_accelerated_files" },
};

static int (*register_internal_extensions)(void);

/* Before any module is started: only its entry and its functions are registered. */
static void leave_out(const char *name)
{
	zend_module_entry *module = zend_hash_str_find_ptr(&module_registry, name, strlen(name));

	int number;

	if (!module) {
		return;
	}
	number = module->module_number;
	zend_unregister_functions(module->functions, -1, NULL);
	zend_hash_str_del(&module_registry, name, strlen(name));
	/* The next module's number is derived from the count: it must differ from the last one's. */
	ZEND_HASH_FOREACH_PTR(&module_registry, module) {
		module->module_number -= module->module_number > number;
	} ZEND_HASH_FOREACH_END();
}

/* Before any directive is registered: only the entries of php.ini exist. */
static void take_larger(const char *name, const char *least_name)
{
	const zval *own = cfg_get_entry(name, strlen(name));
	const zval *least = cfg_get_entry(least_name, strlen(least_name));
	zval value;

	if (!least || (own && zval_get_long((zval *) own) >= zval_get_long((zval *) least))) {
		return;
	}
	ZVAL_STR(&value, zend_string_init(Z_STRVAL_P(least), Z_STRLEN_P(least), true));
	zend_hash_str_update(php_ini_get_configuration_hash(), name, strlen(name), &value);
}

/*
 * Preloading runs a script of the pool's user before the process changes its root. With the
 * capability, that script could start a set-user-ID program in a root that it has filled with
 * libraries of its own; so no program gains privileges then.
 */
static void distrust_preloading(void)
{
	zend_long later = 0;
	char *script = NULL;

	if (cfg_get_long(CHROOT_LATER, &later) == SUCCESS && later != 0
			&& cfg_get_string("opcache.preload", &script) == SUCCESS && script && *script) {
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	}
}

/* Moves to the next name of a list; its length, 0 at the end. */
static size_t next_name(const char **list)
{
	*list += strspn(*list, " ,");
	return strcspn(*list, " ,");
}

/* Whether a list of disabled functions has one that starts programs. */
static bool lists_programs(const char *list)
{
	static const char *const starting[] = {
		"exec", "passthru", "popen", "proc_open", "shell_exec", "system",
	};

	for (size_t length; (length = next_name(&list)) > 0; list += length) {
		for (size_t i = 0; i < sizeof(starting) / sizeof(*starting); i++) {
			if (length == strlen(starting[i]) && !strncasecmp(list, starting[i], length)) {
				return true;
			}
		}
	}
	return false;
}

static bool has_pcntl_switch(void)
{
	zend_long pcntl = 0;

	return cfg_get_long(PCNTL_SWITCH, &pcntl) == SUCCESS && pcntl != 0;
}

/*
 * Lists of disabled functions are written for php-fpm, which has no pcntl: one that keeps scripts
 * from starting programs leaves out these functions, with which they could.
 */
static void leave_out_programs(const char *list)
{
	if (lists_programs(list) && !has_pcntl_switch()) {
		zend_hash_str_del(CG(function_table), "pcntl_exec", sizeof("pcntl_exec") - 1);
		zend_hash_str_del(CG(function_table), "pcntl_fork", sizeof("pcntl_fork") - 1);
	}
}

/* Removes modules and functions that the embed library has and php-fpm has not. */
static int register_modules(void)
{
	char *disabled = NULL;
	int result = register_internal_extensions();

	for (size_t i = 0; i < sizeof(raised) / sizeof(*raised); i++) {
		take_larger(raised[i][0], raised[i][1]);
	}
	distrust_preloading();
	if (maitred_engine.fpm || maitred_engine.mode == MAITRED_CLASSIC) {
		zend_hash_str_del(CG(function_table), "chroot", sizeof("chroot") - 1);
	}
	if (cfg_get_string("disable_functions", &disabled) == SUCCESS && disabled) {
		leave_out_programs(disabled);
	}
	if (maitred_engine.fpm && !has_pcntl_switch()) {
		leave_out("pcntl");
	}
	return result;
}

/* Settings that PHP uses at startup only, and that are no directives. */
bool maitred_is_for_startup(const char *name)
{
	return !strcmp(name, "extension") || !strcmp(name, "zend_extension")
		|| !strcmp(name, PCNTL_SWITCH);
}

void maitred_hook_modules(void)
{
	register_internal_extensions = php_register_internal_extensions_func;
	php_register_internal_extensions_func = register_modules;
}

/* zend_disable_class takes one name; the directive is a list. */
static void disable_classes(const char *list)
{
	for (size_t length; (length = next_name(&list)) > 0; list += length) {
		maitred_disable_class(list, length);
	}
}

void maitred_disable_listed(const char *name, const char *list)
{
	if (!strcmp(name, "disable_functions")) {
		zend_disable_functions(list);
		leave_out_programs(list);
	} else if (!strcmp(name, "disable_classes")) {
		disable_classes(list);
	} else {
		return;
	}
	/* Within a request: it cannot be undone. */
	maitred_engine.spent |= maitred_engine.request != NULL && *list != '\0';
}
