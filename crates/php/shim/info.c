/* php-fpm's -v, -m and -i: the version, the modules, phpinfo(). */
#include "engine.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <ext/standard/info.h>
#include <zend_extensions.h>

static size_t write_out(const char *bytes, size_t length)
{
	size_t done = 0;

	while (done < length) {
		ssize_t written = write(STDOUT_FILENO, bytes + done, length - done);
		if (written < 0 && errno != EINTR) {
			break;
		}
		done += written < 0 ? 0 : (size_t) written;
	}
	return done;
}

#if PHP_VERSION_ID >= 80400
static void print_version(void)
{
	php_print_version(&sapi_module);
}
#else
/* The label of libphp's build time, in phpinfo() as text. */
static const char build_date[] = "Build Date => ";

static void print_version(void)
{
	zval general;
	const char *date;
	size_t length = 0;

	php_output_start_default();
	php_print_info(PHP_INFO_GENERAL);
	php_output_get_contents(&general);
	php_output_discard();
	date = strstr(Z_STRVAL(general), build_date);
	if (date) {
		date += sizeof(build_date) - 1;
		length = strcspn(date, "\n");
	}
	php_printf("PHP %s (%s) (built: %.*s)\nCopyright (c) The PHP Group\n%s", maitred_php_version(),
		sapi_module.name, (int) length, date ? date : "", get_zend_version());
	zval_ptr_dtor(&general);
}
#endif

static int compare_modules(Bucket *one, Bucket *other)
{
	return strcasecmp(((zend_module_entry *) Z_PTR(one->val))->name,
		((zend_module_entry *) Z_PTR(other->val))->name);
}

static int compare_extensions(const zend_llist_element **one, const zend_llist_element **other)
{
	return strcmp(((const zend_extension *) (*one)->data)->name,
		((const zend_extension *) (*other)->data)->name);
}

static void print_modules(void)
{
	HashTable modules;
	zend_module_entry *module;
	zend_llist extensions;
	zend_llist_position position;

	zend_hash_init(&modules, 64, NULL, NULL, false);
	zend_hash_copy(&modules, &module_registry, NULL);
	zend_hash_sort(&modules, compare_modules, 0);
	php_printf("[PHP Modules]\n");
	ZEND_HASH_FOREACH_PTR(&modules, module) {
		php_printf("%s\n", module->name);
	} ZEND_HASH_FOREACH_END();
	zend_hash_destroy(&modules);

	zend_llist_copy(&extensions, &zend_extensions);
	extensions.dtor = NULL;
	zend_llist_sort(&extensions, compare_extensions);
	php_printf("\n[Zend Modules]\n");
	for (zend_extension *extension = zend_llist_get_first_ex(&extensions, &position); extension;
		extension = zend_llist_get_next_ex(&extensions, &position)) {
		php_printf("%s\n", extension->name);
	}
	php_printf("\n");
	zend_llist_destroy(&extensions);
}

bool maitred_php_show(int what)
{
	bool shown = false;

	sapi_module.ub_write = write_out;
	sapi_module.phpinfo_as_text = 1;
	zend_first_try {
		if (php_request_startup() == SUCCESS) {
			SG(headers_sent) = 1;
			SG(request_info).no_headers = 1;
			switch (what) {
			case MAITRED_SHOW_VERSION:
				print_version();
				break;
			case MAITRED_SHOW_MODULES:
				print_modules();
				break;
			default:
				php_print_info(PHP_INFO_ALL);
			}
			php_request_shutdown(NULL);
			shown = true;
		}
	} zend_end_try();
	return shown;
}

bool maitred_php_is_exposed(void)
{
	return PG(expose_php);
}

const char *maitred_php_configured(const char *name)
{
	zval *value = cfg_get_entry(name, strlen(name));

	return value && Z_TYPE_P(value) == IS_STRING ? Z_STRVAL_P(value) : NULL;
}

const char *maitred_php_fpm_config(void)
{
	return maitred_engine.directives.fpm_config;
}
