/*
 * Directives that apply to one request: [PATH=] and [HOST=] sections of php.ini, .user.ini files,
 * the settings of .htaccess files, and the variables PHP_VALUE and PHP_ADMIN_VALUE of a web server.
 * All are undone when the request ends.
 */
#include "engine.h"

#include <string.h>

#include <ext/standard/dl.h>
#include <zend_ini_scanner.h>

/* Most folders whose .user.ini settings are cached; beyond that the cache is cleared. */
#define FOLDERS_MAX 4096

struct folder_ini {
	time_t expires;
	HashTable directives;
};

/*
 * Folder path (with trailing slash) -> struct folder_ini: all .user.ini files from the document
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
 * ends with a slash.
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
		/* The path is terminated before its slash while it is read. */
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

static bool load_extension(const char *file)
{
	zval loaded;

	maitred_engine.spent = true;
	zend_interned_strings_switch_storage(0);
	php_dl(file, MODULE_PERSISTENT, &loaded, 1);
	zend_interned_strings_switch_storage(1);
	return Z_TYPE(loaded) == IS_TRUE;
}

/*
 * The web server's value applies, whatever else may set the directive; only a directive that does
 * not exist is an error (as in php-fpm). Values that cannot be undone make the process unusable for
 * further requests.
 */
static bool pass_value(zend_string *name, zend_string *value, int mode)
{
	if (zend_string_equals_literal(name, "extension") && ZSTR_LEN(value) > 0) {
		return load_extension(ZSTR_VAL(value));
	}
	if (!zend_hash_exists(EG(ini_directives), name)) {
		return false;
	}
	zend_alter_ini_entry_ex(name, value, mode, ZEND_INI_STAGE_ACTIVATE, true);
	maitred_disable_listed(ZSTR_VAL(name), ZSTR_VAL(value));
	return true;
}

static void refuse_passed(const char *why, const char *name)
{
	char *message;

	spprintf(&message, 0, "Passing INI directive through FastCGI: %s%s%s%s", why,
		name ? " '" : "", name ? name : "", name ? "'" : "");
	maitred_log(MAITRED_ERROR, message);
	efree(message);
}

static void set_value(zval *name, zval *value, zval *index, int kind, void *mode)
{
	(void) index;
	if (!name) {
		return;
	}
	if (kind != ZEND_INI_PARSER_ENTRY) {
		refuse_passed("only classic entries are allowed", NULL);
	} else if (Z_TYPE_P(name) != IS_STRING || Z_STRLEN_P(name) == 0) {
		refuse_passed("empty key", NULL);
	} else if (!value || Z_TYPE_P(value) != IS_STRING) {
		refuse_passed("empty value for key", Z_STRVAL_P(name));
	} else if (!pass_value(Z_STR_P(name), Z_STR_P(value), *(int *) mode)) {
		refuse_passed("unable to set", Z_STRVAL_P(name));
	}
}

/* Newline-separated `name = value` lines, as in nginx's `fastcgi_param PHP_VALUE`. */
static void pass_values(const char *values, int mode)
{
	char *lines;

	if (!values) {
		return;
	}
	spprintf(&lines, 0, "%s\n", values);
	zend_parse_ini_string(lines, 1, ZEND_INI_SCANNER_NORMAL, set_value, &mode);
	efree(lines);
}

static void set_folder_value(const char *name, size_t name_length, const char *value, size_t length)
{
	zend_string *directive = zend_string_init(name, name_length, 0);
	zend_string *text = zend_string_init(value, length, 0);

	zend_alter_ini_entry(directive, text, ZEND_INI_PERDIR, ZEND_INI_STAGE_HTACCESS);
	zend_string_release(directive);
	zend_string_release(text);
}

/*
 * Settings of .htaccess files, a line `name=value` each. They are a tenant's: as with Apache's
 * module, only what a folder may set and php_admin_value does not fix applies, and values are
 * literal.
 */
static void set_folder_values(const char *lines)
{
	const char *line = lines;

	while (line && *line) {
		const char *end = line + strcspn(line, "\n");
		const char *value = memchr(line, '=', (size_t) (end - line));

		if (value) {
			size_t name_length = (size_t) (value - line);
			value++;
			set_folder_value(line, name_length, value, (size_t) (end - value));
		}
		line = *end ? end + 1 : end;
	}
}

/*
 * Before the request is activated: the size limit of a body, for one, is read early. .user.ini may
 * change what PHP_VALUE has set. The server's own front sends settings of .htaccess files.
 */
void maitred_pass_values(const struct maitred_request *request)
{
	if (!request->foreign) {
		set_folder_values(request->php_value);
		return;
	}
	pass_values(request->php_value, ZEND_INI_USER);
	pass_values(request->php_admin_value, ZEND_INI_SYSTEM);
}

int maitred_activate(void)
{
	const struct maitred_request *request = maitred_engine.request;

	if (maitred_cache_activate() || maitred_worker_is_booted()) {
		return SUCCESS;
	}
	/* The boot's request applied them, and later changes of the script stay. */
	if (maitred_engine.copied) {
		return SUCCESS;
	}
	if (!request || !SG(request_info).path_translated) {
		return FAILURE;
	}
	activate_host(request);
	activate_folder(request);
	return SUCCESS;
}
