/* The response: header, body, flush, log lines. */
#include "engine.h"

#include <string.h>
#include <unistd.h>

#include <main/http_status_codes.h>
#include <zend_smart_str.h>

/* Longest status line in bytes, its name included (as in php-fpm, whose buffer ends with a NUL). */
#define STATUS_LINE_MAX 1023
#define STATUS_NAME "Status:"

size_t maitred_write(const char *bytes, size_t length)
{
	const struct maitred_request *request = maitred_engine.request;

	if (UNEXPECTED(!request)) {
		if (maitred_engine.works) {
			/* Between two requests: dropped. */
			return length;
		}
		/* Preloading prints outside any request. */
		ssize_t written = write(STDERR_FILENO, bytes, length);
		return written < 0 ? 0 : (size_t) written;
	}
	if (UNEXPECTED(maitred_engine.finished)) {
		return length;
	}
	maitred_obey(maitred_engine.callbacks->send(request->exchange, bytes, length));
	return length;
}

/*
 * From 8.4 on, sends the header even if there is no body yet, as php-fpm does (php-src #12385).
 * Before, a script may still change it while an output buffer holds the body.
 */
void maitred_flush(void *context)
{
	const struct maitred_request *request = maitred_engine.request;

	(void) context;
	if (UNEXPECTED(!request || maitred_engine.finished)) {
		return;
	}
#if PHP_VERSION_ID >= 80400
	sapi_send_headers();
#else
	if (!SG(headers_sent)) {
		return;
	}
#endif
	maitred_obey(maitred_engine.callbacks->flush(request->exchange));
}

static bool has_prefix(const sapi_header_struct *header, const char *prefix, size_t length)
{
	return header->header_len > length && strncasecmp(header->header, prefix, length) == 0;
}

#define HEADER_IS(header, name) has_prefix((header), name ":", sizeof(name ":") - 1)

static bool script_sets_status(sapi_headers_struct *headers)
{
	zend_llist_position position;

	for (sapi_header_struct *header = zend_llist_get_first_ex(&headers->headers, &position); header;
		header = zend_llist_get_next_ex(&headers->headers, &position)) {
		if (HEADER_IS(header, "Status")) {
			return true;
		}
	}
	return false;
}

static const char *reason_phrase(int status)
{
	for (const http_response_status_code_pair *pair = http_status_map; pair->code; pair++) {
		if (pair->code == status) {
			return pair->str;
		}
	}
	return NULL;
}

/* Returns the status of the header, and whether its line is already written. */
static int append_status(smart_str *head, sapi_headers_struct *headers, bool *written)
{
	const char *line = SG(sapi_headers).http_status_line;
	const char *space = line ? strchr(line, ' ') : NULL;
	int status = SG(sapi_headers).http_response_code;
	const char *reason;

	*written = false;
	if (status == 200 && !maitred_engine.directives.nph) {
		return status;
	}
	if (line && maitred_engine.directives.rfc2616_headers) {
		smart_str_appendl(head, line, MIN(strlen(line), STATUS_LINE_MAX));
		status = space ? atoi(space + 1) : status;
	} else if (space && space - line >= 5 && strncasecmp(line, "HTTP/", 5) == 0) {
		smart_str_appends(head, STATUS_NAME);
		smart_str_appendl(head, space, MIN(strlen(space), STATUS_LINE_MAX - strlen(STATUS_NAME)));
		status = atoi(space + 1);
	} else if (script_sets_status(headers)) {
		return status;
	} else {
		smart_str_appends(head, "Status: ");
		smart_str_append_long(head, status);
		reason = reason_phrase(status);
		if (reason) {
			smart_str_appendc(head, ' ');
			smart_str_appends(head, reason);
		}
	}
	smart_str_appends(head, "\r\n");
	*written = true;
	return status;
}

/* The CGI header (RFC 3875 section 6.3), built in full so that it is sent in one piece. */
int maitred_send_headers(sapi_headers_struct *headers)
{
	smart_str head = { 0 };
	zend_llist_position position;
	bool status_written;
	int status;

	if (SG(request_info).no_headers || !maitred_engine.request) {
		return SAPI_HEADER_SENT_SUCCESSFULLY;
	}
	smart_str_alloc(&head, 512, 0);
	status = append_status(&head, headers, &status_written);
	for (sapi_header_struct *header = zend_llist_get_first_ex(&headers->headers, &position); header;
		header = zend_llist_get_next_ex(&headers->headers, &position)) {
		if (header->header_len == 0 || (status == 304 && HEADER_IS(header, "Content-Type"))) {
			continue;
		}
		if (HEADER_IS(header, "Status")) {
			if (status_written) {
				continue;
			}
			status_written = true;
		}
		smart_str_appendl(&head, header->header, header->header_len);
		smart_str_appends(&head, "\r\n");
	}
	smart_str_appends(&head, "\r\n");
	smart_str_0(&head);

	int verdict = MAITRED_CONTINUE;
	if (!maitred_engine.finished) {
		verdict = maitred_engine.callbacks->send(
			maitred_engine.request->exchange, ZSTR_VAL(head.s), ZSTR_LEN(head.s));
	}
	smart_str_free(&head);
	maitred_obey(verdict);
	return SAPI_HEADER_SENT_SUCCESSFULLY;
}

/*
 * Early hints (RFC 8297): the headers so far, which may still change. The receiver selects the
 * lines that are hints.
 */
int maitred_send_hints(void)
{
	const struct maitred_request *request = maitred_engine.request;
	smart_str lines = { 0 };
	zend_llist_position position;
	zend_llist *headers = &SG(sapi_headers).headers;

	if (!request || maitred_engine.finished || SG(headers_sent)) {
		return SAPI_HEADER_SEND_FAILED;
	}
	for (sapi_header_struct *header = zend_llist_get_first_ex(headers, &position); header;
		header = zend_llist_get_next_ex(headers, &position)) {
		smart_str_appendl(&lines, header->header, header->header_len);
		smart_str_appends(&lines, "\r\n");
	}
	smart_str_appends(&lines, "\r\n");
	smart_str_0(&lines);

	int verdict = maitred_engine.callbacks->hint(
		request->exchange, ZSTR_VAL(lines.s), ZSTR_LEN(lines.s));
	smart_str_free(&lines);
	maitred_obey(verdict);
	return SAPI_HEADER_SENT_SUCCESSFULLY;
}

void maitred_log(int level, const char *message)
{
	size_t length = strlen(message);
	const struct maitred_request *request = maitred_engine.request;

	if (length == 0) {
		return;
	}
	if (request) {
		maitred_engine.callbacks->log(request->exchange, level,
			maitred_engine.directives.logging, message, length);
	} else {
		dprintf(STDERR_FILENO, "%s\n", message);
	}
}

void maitred_log_message(const char *message, int syslog_type)
{
	char line[4096];
	size_t length = strlen(message);

	(void) syslog_type;
	if (length + sizeof("PHP message: ") <= sizeof(line)) {
		snprintf(line, sizeof(line), "PHP message: %s", message);
		maitred_log(MAITRED_NOTICE, line);
	} else {
		/* The engine's allocator may be what failed, so a long line is allocated elsewhere. */
		char *copy = NULL;
		if (asprintf(&copy, "PHP message: %s", message) >= 0) {
			maitred_log(MAITRED_NOTICE, copy);
			free(copy);
		}
	}
}
