/*
 * Directives that hold for one request: [PATH=] and [HOST=] sections of php.ini, .user.ini files,
 * and the variables PHP_VALUE and PHP_ADMIN_VALUE of a FastCGI client. All of them are undone when
 * the request ends.
 */
#include "engine.h"

#include <string.h>

#include <zend_ini_scanner.h>

/* Folders whose .user.ini settings are remembered; beyond that the memory starts anew. */
#define FOLDERS_MAX 4096

struct folder_ini {
	time_t expires;
	HashTable directives;
};

/*
 * Folder path (with its last slash) -> struct folder_ini: all .user.ini files from the document
 * root down to it.
 */
static HashTable folders;

static void forget_folder(zval *slot)
{
	struct folder_ini *folder = Z_PTR_P(slot);

	zend_hash_destroy(&folder->directives);
	free(folder);
}

void maitred_request_ini_start(void)
{
	zend_hash_init(&folders, 0, NULL, forget_folder, 1);
}

void maitred_request_ini_stop(void)
{
	zend_hash_destroy(&folders);
}

static struct folder_ini *remembered_folder(const char *path, size_t length)
{
	struct folder_ini *folder = zend_hash_str_find_ptr(&folders, path, length);

	if (folder) {
		return folder;
	}
	if (zend_hash_num_elements(&folders) >= FOLDERS_MAX) {
		zend_hash_clean(&folders);
	}
	folder = pemalloc(sizeof(*folder), 1);
	folder->expires = 0;
	zend_hash_init(&folder->directives, 0, NULL, config_zval_dtor, 1);
	zend_hash_str_update_ptr(&folders, path, length, folder);
	return folder;
}

static bool is_beneath(const char *path, size_t length, const char *root, size_t root_length)
{
	return length > root_length && strncmp(path, root, root_length) == 0
		&& path[root_length] == '/';
}

/*
 * Reads the .user.ini files. Outside the document root only the script's own folder counts. `path`
 * ends in a slash.
 */
static void scan_folders(
	char *path, size_t length, const char *root, size_t root_length, HashTable *directives)
{
	zend_hash_clean(directives);
	if (!is_beneath(path, length, root, root_length)) {
		php_parse_user_ini_file(path, PG(user_ini_filename), directives);
		return;
	}
	for (char *slash = path + root_length; slash; slash = strchr(slash + 1, '/')) {
		/* The folder is spelled without its slash while it is read. */
		*slash = '\0';
		php_parse_user_ini_file(path, PG(user_ini_filename), directives);
		*slash = '/';
	}
}

static void activate_user_ini(char *path, size_t length, const char *root)
{
	size_t root_length = strlen(root);
	time_t now = (time_t) sapi_get_request_time();
	struct folder_ini *folder = remembered_folder(path, length);

	if (now > folder->expires) {
		if (root_length > 0 && root[root_length - 1] == '/') {
			root_length--;
		}
		scan_folders(path, length, root, root_length, &folder->directives);
		folder->expires = now + PG(user_ini_cache_ttl);
	}
	php_ini_activate_config(&folder->directives, PHP_INI_PERDIR, PHP_INI_STAGE_HTACCESS);
}

static void activate_folder(const struct maitred_request *request)
{
	bool user_ini = PG(user_ini_filename) && *PG(user_ini_filename);
	const char *script = SG(request_info).path_translated;
	const char *slash = strrchr(script, '/');
	size_t length;
	char *path;

	if ((!user_ini && !php_ini_has_per_dir_config()) || !slash) {
		return;
	}
	length = (size_t) (slash - script) + 1;
	path = estrndup(script, length);
	php_ini_activate_per_dir_config(path, length);
	if (user_ini && request->document_root) {
		activate_user_ini(path, length, request->document_root);
	}
	efree(path);
}

static void activate_host(const struct maitred_request *request)
{
	size_t length;
	char *host;

	if (!php_ini_has_per_host_config() || !request->server_name) {
		return;
	}
	length = strlen(request->server_name);
	host = estrndup(request->server_name, length);
	zend_str_tolower(host, length);
	php_ini_activate_per_host_config(host, length);
	efree(host);
}

static void set_value(zval *name, zval *value, zval *index, int kind, void *mode)
{
	(void) index;
	if (!name || Z_TYPE_P(name) != IS_STRING || kind != ZEND_INI_PARSER_ENTRY) {
		maitred_log("A directive passed through FastCGI was ignored: "
			"only `name = value` lines are allowed");
		return;
	}
	if (!value || Z_TYPE_P(value) != IS_STRING
		|| zend_alter_ini_entry(
			   Z_STR_P(name), Z_STR_P(value), *(int *) mode, ZEND_INI_STAGE_ACTIVATE)
			!= SUCCESS) {
		maitred_log("A directive passed through FastCGI could not be set");
	}
}

/* Newline-separated `name = value` lines, as nginx's `fastcgi_param PHP_VALUE` passes them. */
static void activate_passed(const char *name, size_t name_length, int mode)
{
	const struct maitred_param *param = maitred_param_named(name, name_length);
	char *lines;

	if (EXPECTED(!param)) {
		return;
	}
	spprintf(&lines, 0, "%s\n", param->value);
	zend_parse_ini_string(lines, 1, ZEND_INI_SCANNER_NORMAL, set_value, &mode);
	efree(lines);
}

int maitred_activate(void)
{
	const struct maitred_request *request = maitred_engine.request;

	if (maitred_cache_activate()) {
		return SUCCESS;
	}
	if (!request || !SG(request_info).path_translated) {
		return FAILURE;
	}
	activate_host(request);
	activate_folder(request);
	activate_passed("PHP_VALUE", sizeof("PHP_VALUE") - 1, ZEND_INI_USER);
	activate_passed("PHP_ADMIN_VALUE", sizeof("PHP_ADMIN_VALUE") - 1, ZEND_INI_SYSTEM);
	return SUCCESS;
}
