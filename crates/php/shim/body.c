/* The body of a request: from the exchange, or from the file the web server has put it in. */
#include "engine.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static int body_file = -1;

void maitred_close_body(void)
{
	if (UNEXPECTED(body_file >= 0)) {
		close(body_file);
		body_file = -1;
	}
}

/* Returns false, having said so, if the file cannot be read. */
static bool open_body(const char *path)
{
	if (body_file < 0) {
		body_file = open(path, O_RDONLY | O_CLOEXEC);
	}
	if (body_file < 0) {
		php_error(E_WARNING, "REQUEST_BODY_FILE: open('%s') failed: %s (%d)", path,
			strerror(errno), errno);
	}
	return body_file >= 0;
}

static size_t read_part(const struct maitred_request *request, char *buffer, size_t capacity)
{
	ssize_t part;

	if (EXPECTED(body_file < 0)) {
		return maitred_engine.callbacks->read_body(request->exchange, buffer, capacity);
	}
	part = read(body_file, buffer, capacity);
	return part > 0 ? (size_t) part : 0;
}

size_t maitred_read_body(char *buffer, size_t capacity)
{
	const struct maitred_request *request = maitred_engine.request;
	size_t done = 0;
	int64_t rest = SG(request_info).content_length - SG(read_post_bytes);

	if (!request || rest <= 0) {
		return 0;
	}
	if (UNEXPECTED(request->body_file && *request->body_file) && !open_body(request->body_file)) {
		return 0;
	}
	if ((uint64_t) rest < capacity) {
		capacity = (size_t) rest;
	}
	while (done < capacity) {
		size_t part = read_part(request, buffer + done, capacity - done);
		if (part == 0) {
			break;
		}
		done += part;
	}
	return done;
}
