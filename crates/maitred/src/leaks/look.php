<?php

declare(strict_types=1);

namespace Maitred\Leaks;

/** What a process has that the next request finds, as a map from names to short words. */
final class Look
{
    /** Most values that are followed from one name: what a large graph has besides is not looked at. */
    private const VALUES_MAX = 20_000;
    private const DEPTH_MAX = 24;
    /** Longest key or ini value that is shown, in bytes, and what it may be made of. */
    private const WORD_BYTES_MAX = 64;
    private const PLAIN = 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.,:/\\ ';
    private const GLOBALS_PASSED_OVER = [
        '_GET', '_POST', '_COOKIE', '_FILES', '_SERVER', '_REQUEST', '_ENV', '_SESSION', 'GLOBALS', 'argv', 'argc',
    ];

    /** @var array<string, string>|null */
    private static ?array $before = null;

    /** @var array<string, string> */
    private array $found = [];
    /** @var array<int, true> */
    private array $seen = [];
    private int $left = 0;

    /** What has changed since the last look, as a line of JSON in a file; the first time, nothing. */
    public static function tell(string $file): void
    {
        $first = self::$before === null;
        $look = new self();
        // The application's own may throw at what is passed over here.
        $handler = set_error_handler(static fn (): bool => true);
        try {
            $now = $look->take($handler);
        } finally {
            restore_error_handler();
        }
        $changes = [];
        foreach (self::$before === null ? [] : $now + self::$before as $name => $_) {
            $old = self::$before[$name] ?? null;
            $new = $now[$name] ?? null;
            if ($old !== $new) {
                $changes[] = [$name, $old, $new];
            }
        }
        self::$before = $now;
        unset($look, $now);
        gc_collect_cycles();
        $memory = memory_get_usage();
        $line = json_encode(['first' => $first, 'memory' => $memory, 'changes' => $changes], \JSON_INVALID_UTF8_SUBSTITUTE);
        file_put_contents($file, $line."\n", \FILE_APPEND);
    }

    /** @return array<string, string> */
    private function take(mixed $handler): array
    {
        foreach (array_keys($GLOBALS) as $name) {
            if (!\in_array($name, self::GLOBALS_PASSED_OVER, true)) {
                $this->follow("global \$$name", $GLOBALS[$name]);
            }
        }
        foreach (get_declared_classes() as $name) {
            $class = new \ReflectionClass($name);
            if ($class->isUserDefined() && $name !== self::class) {
                $this->ofClass($class);
            }
        }
        foreach (get_defined_functions()['user'] as $name) {
            $function = new \ReflectionFunction($name);
            foreach ($function->getStaticVariables() as $variable => $value) {
                $this->follow("static \$$variable in {$function->getName()}()", $value);
            }
        }
        foreach (get_included_files() as $file) {
            $this->found["included file $file"] = 'yes';
        }
        foreach (get_defined_constants(true)['user'] ?? [] as $name => $value) {
            $this->follow("constant $name", $value);
        }
        foreach (ini_get_all(null, false) as $name => $value) {
            $this->found["ini $name"] = self::word((string) $value);
        }
        foreach (getenv() as $name => $value) {
            $this->found["environment $name"] = self::digest($value);
        }
        $this->descriptors();
        $this->rest($handler);

        return $this->found;
    }

    private function ofClass(\ReflectionClass $class): void
    {
        foreach ($class->getProperties(\ReflectionProperty::IS_STATIC) as $property) {
            if ($property->getDeclaringClass()->getName() === $class->getName() && $property->isInitialized()) {
                $this->follow("static {$class->getName()}::\${$property->getName()}", $property->getValue());
            }
        }
        foreach ($class->getMethods() as $method) {
            if ($method->getDeclaringClass()->getName() !== $class->getName() || !$method->isUserDefined()) {
                continue;
            }
            foreach ($method->getStaticVariables() as $variable => $value) {
                $this->follow("static \$$variable in {$class->getName()}::{$method->getName()}()", $value);
            }
        }
    }

    private function descriptors(): void
    {
        foreach (@scandir('/proc/self/fd') ?: [] as $number) {
            $target = @readlink("/proc/self/fd/$number");
            if ($target !== false) {
                $this->found["open descriptor $number"] = $target;
            }
        }
    }

    private function rest(mixed $handler): void
    {
        $exception = set_exception_handler(null);
        restore_exception_handler();
        $this->found += [
            'error handler' => self::callable($handler),
            'exception handler' => self::callable($exception),
            'autoloaders' => (string) \count(spl_autoload_functions()),
            'working folder' => (string) getcwd(),
            'umask' => decoct(umask()),
            'locale' => (string) setlocale(\LC_ALL, '0'),
            'time zone' => date_default_timezone_get(),
        ];
    }

    private function follow(string $name, mixed $value): void
    {
        $this->left = self::VALUES_MAX;
        $this->seen = [];
        $this->value($name, $value, self::DEPTH_MAX);
    }

    private function value(string $name, mixed $value, int $depth): void
    {
        if (--$this->left < 0 || $depth === 0) {
            return;
        }
        if (\is_array($value)) {
            $this->found[$name] = 'array of '.\count($value);
            foreach ($value as $key => $item) {
                $this->value($name.'['.self::word((string) $key).']', $item, $depth - 1);
            }
        } elseif (\is_object($value)) {
            $this->object($name, $value, $depth);
        } else {
            $this->found[$name] = self::digest($value);
        }
    }

    private function object(string $name, object $value, int $depth): void
    {
        $this->found[$name] = 'object '.$value::class;
        if (isset($this->seen[spl_object_id($value)]) || $value instanceof self) {
            return;
        }
        $this->seen[spl_object_id($value)] = true;
        if ($value instanceof \Closure) {
            $this->closure($name, $value, $depth);

            return;
        }
        foreach ((array) $value as $key => $item) {
            // Private and protected names begin with whose they are, between two NULs.
            $this->value($name.'->'.substr("\0".$key, (int) strrpos("\0".$key, "\0") + 1), $item, $depth - 1);
        }
    }

    /** Its static variables, those it uses from outside, and its object. */
    private function closure(string $name, \Closure $value, int $depth): void
    {
        $function = new \ReflectionFunction($value);
        foreach ($function->getStaticVariables() as $variable => $item) {
            $this->value("{$name}->{\$$variable}", $item, $depth - 1);
        }
        $object = $function->getClosureThis();
        if ($object !== null) {
            $this->value("$name->{\$this}", $object, $depth - 1);
        }
    }

    /** No text is shown: it may be a secret. */
    private static function digest(mixed $value): string
    {
        return match (true) {
            \is_string($value) => 'string of '.\strlen($value).', '.hash('crc32b', $value),
            \is_bool($value), \is_int($value), \is_float($value), $value === null => var_export($value, true),
            default => get_debug_type($value),
        };
    }

    /** A short text of plain letters as it is; others may be secrets, too. */
    private static function word(string $text): string
    {
        $plain = \strlen($text) <= self::WORD_BYTES_MAX && strspn($text, self::PLAIN) === \strlen($text);

        return $plain ? $text : self::digest($text);
    }

    private static function callable(mixed $handler): string
    {
        return match (true) {
            $handler === null => 'none',
            \is_string($handler) => $handler,
            \is_array($handler) => (\is_object($handler[0]) ? $handler[0]::class : $handler[0]).'::'.$handler[1],
            default => $handler::class,
        };
    }
}

function look(): void
{
    Look::tell(REPORT);
}
