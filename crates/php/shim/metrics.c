/*
 * Counters of the application: maitred_metric_add() and its siblings. They are in memory that all
 * processes of a pool share, and the front reads (crates/scoreboard/src/application.rs describes
 * it). This file is part of maitred-php, and an extension of its own for PHP's command line
 * (MAITRED_METRICS_EXTENSION).
 *
 * No process waits for another: a series is found or claimed by an atomic word, and a value is one
 * or two atomic words. A process that is killed while it writes the name of a series leaves that to
 * the next one that counts the same: both write the same bytes.
 */
#include <php.h>

#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "metrics.h"

/* As in crates/scoreboard/src/application.rs. */
#define MAGIC UINT64_C(0x316d646572746961)
#define SERIES_AT 1
#define REFUSED_AT 2
#define INDEX_AT 8
#define PLACES 2048
#define SLOTS_AT 4096
#define SLOT_WORDS 64
#define KEY_WORDS 30
#define LENGTH_AT 30
#define VALUES_AT 32
#define WORDS (SLOTS_AT + PLACES * SLOT_WORDS)

/* Limits. */
#define SERIES_MAX 1000
#define PROBES_MAX 64
#define LABELS_MAX 8
#define NAME_BYTES_MAX 100
#define LABEL_BYTES_MAX 60
#define VALUE_BYTES_MAX 120
#define KEY_BYTES_MAX (8 * KEY_WORDS)
#define ADD_ATTEMPTS_MAX 1000

/* The lowest bits of a word of the index; the others are those of the hash. */
#define NAMING 1
#define NAMED 2
#define STATE 3

enum refusal { INVALID, TOO_LONG, FULL, REFUSALS };

static const char *const why[REFUSALS] = {
	[INVALID] = "a name, a label or a value that a metric cannot have",
	[TOO_LONG] = "too many labels, or a name or a label that is too long",
	[FULL] = "more series than a pool may have",
};

/* Upper bounds of the buckets of histograms; the last bucket has none. */
static const double bounds[] = {
	0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100,
};
#define BUCKETS (sizeof(bounds) / sizeof(bounds[0]) + 1)

/* NULL: nothing is counted. */
static _Atomic uint64_t *words;

/* The kind, the name and the labels of a series, as they are in its slot. The rest is zero. */
struct key {
	union {
		unsigned char bytes[KEY_BYTES_MAX];
		uint64_t words[KEY_WORDS];
	};
	size_t length;
};

struct label {
	zend_string *name;
	const char *value;
	size_t length;
};

void maitred_metrics_map(int fd)
{
	struct stat stat;
	void *start;

	if (fstat(fd, &stat) != 0 || (uint64_t) stat.st_size != WORDS * sizeof(uint64_t)) {
		return;
	}
	start = mmap(NULL, (size_t) stat.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (start == MAP_FAILED) {
		return;
	}
	words = start;
	if (atomic_load(&words[0]) != MAGIC) {
		munmap(start, (size_t) stat.st_size);
		words = NULL;
	}
}

/* Counts what is refused, and logs the first of each kind. */
static bool refuse(enum refusal reason)
{
	char line[256];

	if (words && atomic_fetch_add(&words[REFUSED_AT + reason], 1) == 0) {
		snprintf(
			line, sizeof(line),
			"maitred: a metric of the application is not counted: it has %s (logged once)",
			why[reason]);
		php_log_err(line);
	}
	return false;
}

static bool is_letter(unsigned char byte)
{
	return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_';
}

/* The data model of Prometheus, without colons, which are for recording rules. */
static bool is_name(const unsigned char *name, size_t length)
{
	if (length == 0 || !is_letter(name[0])) {
		return false;
	}
	for (size_t i = 1; i < length; i++) {
		if (!is_letter(name[i]) && !(name[i] >= '0' && name[i] <= '9')) {
			return false;
		}
	}
	return true;
}

/* Names that the server or Prometheus gives a meaning. */
static bool is_label_name(const unsigned char *name, size_t length)
{
	return is_name(name, length) && !(length >= 2 && name[0] == '_' && name[1] == '_')
		&& !(length == 4 && memcmp(name, "pool", 4) == 0)
		&& !(length == 2 && memcmp(name, "le", 2) == 0);
}

static bool is_valid(const struct key *key)
{
	const unsigned char *at = key->bytes + 1, *end = key->bytes + key->length;
	const unsigned char *last = NULL;
	size_t last_length = 0;

	if (!is_name(at + 1, *at)) {
		return false;
	}
	for (at += 1 + *at; at < end; at += 1 + *at) {
		if (!is_label_name(at + 1, *at)
			|| (last && last_length == *at && memcmp(last, at + 1, *at) == 0)) {
			return false;
		}
		last = at + 1;
		last_length = *at;
		at += 1 + *at;
	}
	return true;
}

static bool append(struct key *key, const char *text, size_t length, size_t most)
{
	if (length > most || key->length + 1 + length > KEY_BYTES_MAX) {
		return false;
	}
	key->bytes[key->length++] = (unsigned char) length;
	memcpy(key->bytes + key->length, text, length);
	key->length += length;
	return true;
}

static int compare(const struct label *a, const struct label *b)
{
	size_t a_length = ZSTR_LEN(a->name), b_length = ZSTR_LEN(b->name);
	int order = memcmp(
		ZSTR_VAL(a->name), ZSTR_VAL(b->name), a_length < b_length ? a_length : b_length);

	return order ? order : (a_length > b_length) - (a_length < b_length);
}

/* Sorted by name: their order at the call does not matter. Numbers are written to `text`. */
static int collect(HashTable *table, struct label *labels, char text[LABELS_MAX][24])
{
	int count = 0;
	zend_string *name;
	zval *value;

	ZEND_HASH_FOREACH_STR_KEY_VAL(table, name, value) {
		struct label label = {name, "", 0};
		int at = count;

		if (count == LABELS_MAX) {
			return -1 - TOO_LONG;
		}
		ZVAL_DEREF(value);
		if (Z_TYPE_P(value) == IS_STRING) {
			label.value = Z_STRVAL_P(value);
			label.length = Z_STRLEN_P(value);
		} else if (Z_TYPE_P(value) == IS_LONG) {
			label.value = text[count];
			label.length = (size_t) snprintf(text[count], 24, ZEND_LONG_FMT, Z_LVAL_P(value));
		} else if (Z_TYPE_P(value) == IS_TRUE || Z_TYPE_P(value) == IS_FALSE) {
			label.value = Z_TYPE_P(value) == IS_TRUE ? "true" : "false";
			label.length = strlen(label.value);
		} else {
			return -1 - INVALID;
		}
		if (!name) {
			return -1 - INVALID;
		}
		for (; at > 0 && compare(&label, &labels[at - 1]) < 0; at--) {
			labels[at] = labels[at - 1];
		}
		labels[at] = label;
		count++;
	} ZEND_HASH_FOREACH_END();
	return count;
}

static bool make_key(struct key *key, char kind, zend_string *name, HashTable *table)
{
	struct label labels[LABELS_MAX];
	char text[LABELS_MAX][24];
	int count = table ? collect(table, labels, text) : 0;
	size_t padded;

	if (count < 0) {
		return refuse((enum refusal) (-1 - count));
	}
	key->length = 1;
	key->bytes[0] = (unsigned char) kind;
	if (!append(key, ZSTR_VAL(name), ZSTR_LEN(name), NAME_BYTES_MAX)) {
		return refuse(TOO_LONG);
	}
	for (int i = 0; i < count; i++) {
		if (!append(key, ZSTR_VAL(labels[i].name), ZSTR_LEN(labels[i].name), LABEL_BYTES_MAX)
			|| !append(key, labels[i].value, labels[i].length, VALUE_BYTES_MAX)) {
			return refuse(TOO_LONG);
		}
	}
	padded = (key->length + 7) & ~(size_t) 7;
	memset(key->bytes + key->length, 0, padded - key->length);
	return true;
}

static uint64_t hash_of(const struct key *key)
{
	uint64_t hash = key->length;

	for (size_t i = 0; i < (key->length + 7) / 8; i++) {
		hash = (hash ^ key->words[i]) * UINT64_C(0x9e3779b97f4a7c15);
		hash ^= hash >> 32;
	}
	hash &= ~(uint64_t) STATE;
	return hash ? hash : STATE + 1;
}

static bool is_same(const _Atomic uint64_t *slot, const struct key *key)
{
	if (atomic_load_explicit(&slot[LENGTH_AT], memory_order_relaxed) != key->length) {
		return false;
	}
	for (size_t i = 0; i < (key->length + 7) / 8; i++) {
		if (atomic_load_explicit(&slot[i], memory_order_relaxed) != key->words[i]) {
			return false;
		}
	}
	return true;
}

static void write_key(_Atomic uint64_t *slot, const struct key *key)
{
	for (size_t i = 0; i < (key->length + 7) / 8; i++) {
		atomic_store_explicit(&slot[i], key->words[i], memory_order_relaxed);
	}
	atomic_store_explicit(&slot[LENGTH_AT], key->length, memory_order_relaxed);
}

/* Has the word of a free place be that of this series. Returns the word that is there then. */
static uint64_t claim(_Atomic uint64_t *place, uint64_t hash)
{
	uint64_t found = 0;

	if (atomic_fetch_add(&words[SERIES_AT], 1) >= SERIES_MAX) {
		atomic_fetch_sub(&words[SERIES_AT], 1);
		return 0;
	}
	if (atomic_compare_exchange_strong(place, &found, hash | NAMING)) {
		return hash | NAMING;
	}
	atomic_fetch_sub(&words[SERIES_AT], 1);
	return found;
}

/* The values of a series; NULL: it is refused. */
static _Atomic uint64_t *find(char kind, zend_string *name, HashTable *labels)
{
	struct key key;
	uint64_t hash;

	if (!words || !make_key(&key, kind, name, labels)) {
		return NULL;
	}
	hash = hash_of(&key);
	for (uint64_t probe = 0; probe < PROBES_MAX; probe++) {
		uint64_t at = ((hash >> 20) + probe) % PLACES;
		_Atomic uint64_t *place = &words[INDEX_AT + at];
		_Atomic uint64_t *slot = &words[SLOTS_AT + at * SLOT_WORDS];
		uint64_t word = atomic_load_explicit(place, memory_order_acquire);

		if (word == 0) {
			if (!is_valid(&key)) {
				refuse(INVALID);
				return NULL;
			}
			word = claim(place, hash);
			if (word == 0) {
				break;
			}
		}
		if (word == (hash | NAMING)) {
			write_key(slot, &key);
			atomic_store_explicit(place, hash | NAMED, memory_order_release);
		} else if (word != (hash | NAMED)) {
			continue;
		}
		if (is_same(slot, &key)) {
			return &slot[VALUES_AT];
		}
	}
	refuse(FULL);
	return NULL;
}

static void add_double(_Atomic uint64_t *word, double value)
{
	uint64_t old = atomic_load_explicit(word, memory_order_relaxed), new;

	/* Others that write without end must not hold this script. */
	for (int attempt = 0; attempt < ADD_ATTEMPTS_MAX; attempt++) {
		double sum;

		memcpy(&sum, &old, sizeof(sum));
		sum += value;
		memcpy(&new, &sum, sizeof(new));
		if (atomic_compare_exchange_weak(word, &old, new)) {
			return;
		}
	}
}

static bool parse(
	INTERNAL_FUNCTION_PARAMETERS, uint32_t needed, zend_string **name, zval **value,
	HashTable **labels)
{
	ZEND_PARSE_PARAMETERS_START(needed, 3)
		Z_PARAM_STR(*name)
		if (needed < 2) {
			Z_PARAM_OPTIONAL
		}
		Z_PARAM_NUMBER(*value)
		Z_PARAM_OPTIONAL
		Z_PARAM_ARRAY_HT(*labels)
	ZEND_PARSE_PARAMETERS_END_EX(return false);
	(void) return_value;
	return true;
}

ZEND_FUNCTION(maitred_metric_add)
{
	zend_string *name;
	zval *value = NULL;
	HashTable *labels = NULL;
	_Atomic uint64_t *values;

	if (!parse(INTERNAL_FUNCTION_PARAM_PASSTHRU, 1, &name, &value, &labels)) {
		RETURN_THROWS();
	}
	if (value && !(zval_get_double(value) >= 0 && zend_finite(zval_get_double(value)))) {
		RETURN_BOOL(refuse(INVALID));
	}
	values = find('c', name, labels);
	if (!values) {
		RETURN_FALSE;
	}
	if (!value || Z_TYPE_P(value) == IS_LONG) {
		atomic_fetch_add_explicit(
			&values[0], value ? (uint64_t) Z_LVAL_P(value) : 1, memory_order_relaxed);
	} else {
		add_double(&values[1], Z_DVAL_P(value));
	}
	RETURN_TRUE;
}

ZEND_FUNCTION(maitred_metric_set)
{
	zend_string *name;
	zval *value = NULL;
	HashTable *labels = NULL;
	_Atomic uint64_t *values;
	double number;
	uint64_t word;

	if (!parse(INTERNAL_FUNCTION_PARAM_PASSTHRU, 2, &name, &value, &labels)) {
		RETURN_THROWS();
	}
	number = zval_get_double(value);
	values = zend_finite(number) ? find('g', name, labels) : NULL;
	if (!values) {
		RETURN_BOOL(zend_finite(number) ? false : refuse(INVALID));
	}
	memcpy(&word, &number, sizeof(word));
	atomic_store_explicit(&values[0], word, memory_order_relaxed);
	RETURN_TRUE;
}

ZEND_FUNCTION(maitred_metric_observe)
{
	zend_string *name;
	zval *value = NULL;
	HashTable *labels = NULL;
	_Atomic uint64_t *values;
	double number;
	size_t bucket = 0;

	if (!parse(INTERNAL_FUNCTION_PARAM_PASSTHRU, 2, &name, &value, &labels)) {
		RETURN_THROWS();
	}
	number = zval_get_double(value);
	values = zend_finite(number) ? find('h', name, labels) : NULL;
	if (!values) {
		RETURN_BOOL(zend_finite(number) ? false : refuse(INVALID));
	}
	while (bucket < BUCKETS - 1 && number > bounds[bucket]) {
		bucket++;
	}
	atomic_fetch_add_explicit(&values[bucket], 1, memory_order_relaxed);
	add_double(&values[BUCKETS], number);
	RETURN_TRUE;
}

#ifdef MAITRED_METRICS_EXTENSION

/* Two numbers of descriptors, with a comma: this library, and the memory. Both are closed, since
 * what the script starts has no use for them. */
static PHP_MINIT_FUNCTION(maitred_metrics)
{
	const char *fds = getenv(MAITRED_METRICS_VARIABLE);
	int library = -1, memory = -1;

	(void) type;
	(void) module_number;
	if (fds && sscanf(fds, "%d,%d", &library, &memory) >= 1) {
		if (memory > STDERR_FILENO) {
			maitred_metrics_map(memory);
			close(memory);
		}
		if (library > STDERR_FILENO) {
			close(library);
		}
		unsetenv(MAITRED_METRICS_VARIABLE);
	}
	return SUCCESS;
}

static const zend_function_entry functions[] = {
	MAITRED_METRIC_FUNCTIONS
	PHP_FE_END
};

static zend_module_entry maitred_metrics_module_entry = {
	STANDARD_MODULE_HEADER,
	"maitred",
	functions,
	PHP_MINIT(maitred_metrics),
	NULL,
	NULL,
	NULL,
	NULL,
	PHP_VERSION,
	STANDARD_MODULE_PROPERTIES
};

ZEND_GET_MODULE(maitred_metrics)

#endif
