/* What PHP is made of: modules that stay out, functions and classes that are taken away. */
#include "engine.h"

#include <string.h>

#include <zend_API.h>

/* Absent in php-fpm; on if this entry of php.ini says so. */
#define PCNTL_SWITCH "maitred.pcntl"

static int (*register_internal_extensions)(void);

/* Before any module is started: all of it that is known is its entry and its functions. */
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
	/* The next module's number is made of how many there are: it must not be the last one's. */
	ZEND_HASH_FOREACH_PTR(&module_registry, module) {
		module->module_number -= module->module_number > number;
	} ZEND_HASH_FOREACH_END();
}

/* What the embed library has and php-fpm has not. */
static int register_modules(void)
{
	zend_long pcntl = 0;
	int result = register_internal_extensions();

	if (!maitred_engine.fpm) {
		return result;
	}
	if (cfg_get_long(PCNTL_SWITCH, &pcntl) != SUCCESS || pcntl == 0) {
		leave_out("pcntl");
	}
	zend_hash_str_del(CG(function_table), "chroot", sizeof("chroot") - 1);
	return result;
}

/* What is used while PHP starts, and is no directive afterwards. */
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
	while (*list) {
		size_t length = strcspn(list, " ,");
		if (length) {
			maitred_disable_class(list, length);
		}
		list += length;
		list += strspn(list, " ,");
	}
}

void maitred_disable_listed(const char *name, const char *list)
{
	if (!strcmp(name, "disable_functions")) {
		zend_disable_functions(list);
	} else if (!strcmp(name, "disable_classes")) {
		disable_classes(list);
	} else {
		return;
	}
	/* Within a request: it cannot be undone. */
	maitred_engine.spent |= maitred_engine.request != NULL && *list != '\0';
}
