<?php
/**
 * Plugin Name: maitred snapshot
 * Description: Ends the boot of a WordPress that maitred copies: before any plugin is loaded, where something first looks at the request, or after all plugins are loaded.
 * Version: 0.2.0
 * Requires at least: 5.6
 * Requires PHP: 7.0
 * License: MIT
 * License URI: https://opensource.org/license/mit
 *
 * Belongs into wp-content/mu-plugins/, whose files are loaded by name: this one has to be the first. It does
 * nothing unless maitred-index.php is what is run.
 *
 * Lines for wp-config.php:
 *
 * `define( 'MAITRED_SNAPSHOT_WITH_PLUGINS', 'traced' );`: plugins, theme and the action `init` are part of the boot,
 * up to the first place that depends on the request, on the time, on random numbers, or on more of the database than
 * options.
 *
 * `define( 'MAITRED_SNAPSHOT_WITH_PLUGINS', true );`: all of it up to `wp_loaded` is. That is for sites whose plugins
 * do not look at the request before.
 *
 * @package Maitred
 */

defined( 'ABSPATH' ) || exit;

/**
 * Returns in a copy, with its request; elsewhere at once.
 *
 * @param Maitred_Snapshot_Trace|null $trace What is known of the boot.
 */
function maitred_snapshot_wordpress( $trace = null ) {
	global $wpdb;

	if ( ! defined( 'MAITRED_BOOTS' ) || ! MAITRED_BOOTS || defined( 'MAITRED_BOOT_HAS_ENDED' ) ) {
		return;
	}
	define( 'MAITRED_BOOT_HAS_ENDED', true );
	$why = maitred_snapshot_obstacle();
	if ( $why ) {
		// phpcs:ignore WordPress.PHP.DevelopmentFunctions.error_log_trigger_error
		trigger_error( 'maitred snapshot: ' . esc_html( $why ), E_USER_ERROR );
	}
	$names    = $trace ? array_keys( $trace->options ) : maitred_snapshot_option_names();
	$settings = maitred_snapshot_settings( $names );
	if ( did_action( 'muplugins_loaded' ) ) {
		maitred_snapshot_renew_browser();
	}
	// No copy shares a connection, or what was read over it.
	$wpdb->close();
	wp_cache_flush();
	maitred_snapshot();

	// What wp-settings.php has made of the boot's request, and of the time.
	wp_fix_server_vars();
	wp_maintenance();
	timer_start();
	wp_debug_mode();
	$wpdb->num_queries = 0;
	$wpdb->queries     = array();
	$wpdb->db_connect();
	if ( $trace && $trace->is_other() ) {
		// What plugins do at the end of a request, they do there.
		remove_all_actions( 'shutdown' );
		header( 'X-Accel-Redirect: @classic' );
		exit;
	}
	maitred_snapshot_renew_request( $trace );
	// This copy is the last but a few that knows them as they were: maitred boots again.
	$is_old = maitred_snapshot_settings( $names ) !== $settings || $trace && $trace->is_outdated();
	if ( $is_old && function_exists( 'opcache_reset' ) ) {
		opcache_reset();
	}
}

/**
 * What WordPress itself makes of a request, as far as the boot has come.
 *
 * @param Maitred_Snapshot_Trace|null $trace What is known of the boot.
 */
function maitred_snapshot_renew_request( $trace ) {
	// phpcs:disable WordPress.Security.NonceVerification.Recommended
	if ( isset( $_GET['replytocom'] ) ) {
		add_filter( 'wp_robots', 'wp_robots_no_robots' );
	}
	if ( did_action( 'muplugins_loaded' ) ) {
		maitred_snapshot_renew_browser();
		if ( isset( $_REQUEST['wp_scrape_key'] ) ) {
			wp_start_scraping_edited_file_errors();
		}
	}
	// phpcs:enable
	if ( did_action( 'sanitize_comment_cookies' ) ) {
		wp_magic_quotes();
		sanitize_comment_cookies();
	}
	if ( did_action( 'init' ) || $trace && $trace->has_looked_for_user() ) {
		maitred_snapshot_renew_user();
	}
	if ( $trace ) {
		$trace->renew_scripts();
	}
	foreach ( $trace ? $trace->postponed : array( 'wp_cron', '_show_post_preview' ) as $name ) {
		if ( $trace || has_action( 'init', $name ) ) {
			$name();
		}
	}
}

/**
 * The user, and what depends on the user's rights: plugins may have changed that for users with the rights of a
 * visitor during the boot.
 */
function maitred_snapshot_renew_user() {
	global $current_user, $wp;

	$has_kses     = has_action( 'set_current_user', 'kses_init' );
	$current_user = null;
	if ( false !== $has_kses ) {
		remove_action( 'set_current_user', 'kses_init', $has_kses );
	}
	$wp->init();
	if ( false !== $has_kses ) {
		add_action( 'set_current_user', 'kses_init', $has_kses );
		if ( current_user_can( 'unfiltered_html' ) ) {
			kses_remove_filters();
		}
	}
}

/**
 * The browser detection of wp-includes/vars.php, whose functions are declared already.
 */
function maitred_snapshot_renew_browser() {
	static $renew = null;

	// Compiled in the boot: the first call.
	if ( null === $renew ) {
		// phpcs:ignore WordPress.WP.AlternativeFunctions.file_get_contents_file_get_contents
		$code = file_get_contents( ABSPATH . WPINC . '/vars.php' );
		$code = substr( $code, 5, strpos( $code, "\nfunction " ) - 5 );
		$code = substr( $code, 0, strrpos( $code, '/**' ) );
		// phpcs:ignore Squiz.PHP.Eval.Discouraged
		$renew = eval( "return function () {\n$code\n};" );
	}
	$renew();
}

/**
 * Options that the boot has used, and keeps beside the database.
 */
function maitred_snapshot_option_names() {
	if ( did_action( 'wp_loaded' ) ) {
		return array( 'siteurl', 'home', 'active_plugins', 'template', 'stylesheet', 'permalink_structure', 'category_base', 'tag_base', 'sidebars_widgets', 'WPLANG', 'db_version' );
	}
	return array( 'siteurl' );
}

/**
 * Their values in the database, which no plugin filters.
 *
 * @param string[] $names Names of options.
 */
function maitred_snapshot_settings( $names ) {
	global $wpdb;

	$all   = wp_load_alloptions();
	$found = array_intersect_key( $all, array_flip( $names ) );
	$rest  = array_diff( $names, array_keys( $all ) );
	if ( $rest ) {
		$places = implode( ', ', array_fill( 0, count( $rest ), '%s' ) );
		// phpcs:ignore WordPress.DB
		$rows   = $wpdb->get_results( $wpdb->prepare( "SELECT option_name, option_value FROM $wpdb->options WHERE option_name IN ($places)", array_values( $rest ) ) );
		$others = array_column( $rows, 'option_value', 'option_name' );
		$found += $others;
		// WordPress would look each of them up.
		wp_cache_set_multiple( $others, 'options' );
		wp_cache_set( 'notoptions', array_fill_keys( array_diff( $rest, array_keys( $others ) ), true ), 'options' );
	}
	ksort( $found );
	return $found;
}

/**
 * Why this WordPress cannot be copied; empty: it can be.
 */
function maitred_snapshot_obstacle() {
	if ( is_multisite() ) {
		return 'a network of sites chooses the site while it boots; use a pool with mode = "classic"';
	}
	if ( defined( 'WP_CACHE' ) && WP_CACHE ) {
		return 'WP_CACHE loads advanced-cache.php while it boots, for one request; take WP_CACHE out of wp-config.php and use the page cache of maitred';
	}
	if ( wp_using_ext_object_cache() ) {
		return 'object-cache.php keeps a connection, or what it has read, for all copies; remove that file or use a pool with mode = "classic"';
	}
	return '';
}

/**
 * Finds the place of the boot that first depends on the request, and ends the boot there.
 */
class Maitred_Snapshot_Trace {
	/**
	 * Functions of WordPress that read the request: what they make of it is renewed in each request.
	 */
	const RENEWED = array( 'wp_fix_server_vars', 'wp_populate_basic_auth_from_authorization_header', 'timer_start', 'timer_float', 'wp_magic_quotes', 'sanitize_comment_cookies', 'wp_start_scraping_edited_file_errors' );

	/**
	 * Functions of WordPress that read the request, and find nothing in it unless `is_other()` is true.
	 */
	const GUARDED = array( 'is_ssl', 'determine_locale', '_wp_customize_include', 'wp_initialize_theme_preview_hooks', 'WP_Recovery_Mode_Cookie_Service::is_cookie_set', 'WP_Recovery_Mode_Link_Service::handle_begin_link' );

	/**
	 * Those that find out who the user is.
	 */
	const OF_THE_USER = array( 'wp_parse_auth_cookie', 'wp_validate_logged_in_cookie', 'wp_validate_application_password' );

	/**
	 * Files of WordPress that read the request while they are loaded, and are renewed, too.
	 */
	const RENEWED_FILES = array( 'vars.php', 'default-filters.php' );

	/**
	 * Callbacks of `init` that wait for the request.
	 */
	const POSTPONED = array( 'wp_cron', '_show_post_preview' );

	/**
	 * Hooks within what is renewed: with callbacks of plugins, the boot ends before it.
	 */
	const BEFORE_COOKIES = array( 'sanitize_comment_cookies', 'pre_comment_author_name', 'pre_comment_author_email', 'pre_comment_author_url' );
	const BEFORE_USER    = array( 'determine_current_user', 'set_current_user', 'auth_cookie_malformed', 'auth_cookie_expired', 'auth_cookie_bad_username', 'auth_cookie_bad_hash', 'auth_cookie_bad_session_token', 'auth_cookie_valid', 'application_password_is_api_request', 'wp_is_application_passwords_available' );

	/**
	 * Elements of $_SERVER that are the same in all requests.
	 */
	const SAME = array( 'DOCUMENT_ROOT', 'GATEWAY_INTERFACE', 'SCRIPT_FILENAME', 'SERVER_SOFTWARE' );

	/**
	 * Options that change without effect on the boot.
	 */
	const VOLATILE = array( 'cron' );

	/**
	 * Names of options that the boot has read, as keys.
	 *
	 * @var array
	 */
	public $options = array( 'siteurl' => true, 'active_plugins' => true, 'template' => true, 'stylesheet' => true, 'WPLANG' => true, 'db_version' => true );

	/**
	 * Callbacks of `init` that the boot has passed.
	 *
	 * @var string[]
	 */
	public $postponed = array();

	/**
	 * Hooks and the keys of WordPress' own callbacks there.
	 *
	 * @var array
	 */
	private $own = array();

	/**
	 * Whether WordPress may look for a user: the boot's is a visitor.
	 *
	 * @var bool
	 */
	private $is_visitor = false;

	/**
	 * Whether this is a copy.
	 *
	 * @var bool
	 */
	private $has_ended = false;

	/**
	 * Whether the boot's request came over TLS.
	 *
	 * @var bool
	 */
	private $is_ssl;

	/**
	 * Scripts as WordPress has registered them, by their handle.
	 *
	 * @var array|null
	 */
	private $scripts = null;

	/**
	 * Whether WordPress is about to register them.
	 *
	 * @var bool
	 */
	private $makes_scripts = false;

	/**
	 * Whether plugins take part in that.
	 *
	 * @var bool
	 */
	private $plugins_make_scripts = false;

	/**
	 * See tick().
	 *
	 * @var string
	 */
	private $tick = '';

	/**
	 * Whether the list of template parts waits for the request.
	 *
	 * @var bool
	 */
	private $lists_templates = false;

	/**
	 * Handles of those that plugins have changed.
	 *
	 * @var string[]
	 */
	private $changed = array();

	/**
	 * The folder of WordPress, without symbolic links.
	 *
	 * @var string
	 */
	private $root;

	/**
	 * Starts before any plugin is loaded.
	 */
	public function start() {
		$this->is_ssl = is_ssl();
		$this->root   = trailingslashit( dirname( dirname( ( new ReflectionFunction( 'wp_fix_server_vars' ) )->getFileName() ) ) );
		foreach ( array_merge( self::BEFORE_COOKIES, self::BEFORE_USER, array( 'wp_default_scripts' ) ) as $hook ) {
			$this->own[ $hook ] = $this->callbacks( $hook );
		}
		maitred_before_request_read( array( $this, 'read' ) );
		add_filter( 'query', array( $this, 'query' ), PHP_INT_MIN );
		add_filter( 'pre_http_request', array( $this, 'remote' ), PHP_INT_MIN, 3 );
		add_filter( 'pre_get_block_templates', array( $this, 'templates' ), PHP_INT_MIN );
		add_action( 'all', array( $this, 'hook' ) );
	}

	/**
	 * Called before each read of the request.
	 *
	 * @param string      $what A variable or a function.
	 * @param string|null $key  The element that is read, if it is known.
	 * @return bool Whether the boot continues.
	 */
	public function read( $what, $key ) {
		$is_variable = '_' === $what[0];
		if ( '_SERVER' === $what && in_array( $key, self::SAME, true ) ) {
			return true;
		}
		$frames = $this->frames();
		$reader = $frames[0]['name'];
		if ( in_array( $reader, self::GUARDED, true ) || 'wp_default_scripts' === $reader && ! did_action( 'init' ) ) {
			return true;
		}
		if ( $this->makes_scripts ) {
			$frames = array_slice( $frames, 0, array_search( 'WP_Scripts::init', array_column( $frames, 'name' ), true ) );
		}
		if ( ! $this->foreign( $frames ) ) {
			$is_of_user = $this->is_visitor && in_array( $reader, self::OF_THE_USER, true );
			$is_renewed = in_array( $reader, self::RENEWED, true ) || in_array( $this->included( $frames ), self::RENEWED_FILES, true );
			if ( ! $is_variable || $is_of_user || $is_renewed || $this->makes_scripts ) {
				return true;
			}
		}
		$this->end( $is_variable ? '$' . $what . ( null === $key ? '' : "['$key']" ) : "$what()", $frames );
		return false;
	}

	/**
	 * Called for each query: what is not about options depends on more of the database.
	 *
	 * @param string $query SQL.
	 */
	public function query( $query ) {
		global $wpdb;

		if ( ! preg_match( "/^\s*SELECT option_(name, option_)?value FROM {$wpdb->options}\b/i", $query ) ) {
			$frames = $this->frames();
			if ( $this->foreign( $frames ) || preg_match( '/^\s*SELECT\b/i', $query ) ) {
				$this->end( 'a query (' . substr( preg_replace( '/\s+/', ' ', $query ), 0, 80 ) . ')', $frames );
			}
		}
		return $query;
	}

	/**
	 * Called for each query for templates. WordPress lists those of template parts in the type of their block, which
	 * only editors look at: that waits for the request.
	 *
	 * @param mixed $templates What a plugin has found.
	 */
	public function templates( $templates ) {
		$is_listed = in_array( 'build_template_part_block_variations', array_column( $this->frames(), 'name' ), true );
		if ( ! $is_listed || has_filter( 'register_block_type_args' ) || has_filter( 'block_type_metadata_settings' ) ) {
			return $templates;
		}
		$this->lists_templates = true;
		return array();
	}

	/**
	 * Puts a list that is made when it is looked at in place of the boot's.
	 */
	private function postpone_list_of_templates() {
		$registry = WP_Block_Type_Registry::get_instance();
		$type     = $registry->get_registered( 'core/template-part' );
		if ( ! $this->lists_templates || ! $type ) {
			return;
		}
		maitred_snapshot_declare();
		$lazy = ( new ReflectionClass( 'Maitred_Snapshot_Template_Part' ) )->newInstanceWithoutConstructor();
		foreach ( get_object_vars( $type ) as $name => $value ) {
			$lazy->$name = $value;
		}
		unset( $lazy->variations );
		$types = new ReflectionProperty( $registry, 'registered_block_types' );
		$types->setAccessible( true );
		$types->setValue( $registry, array_merge( $types->getValue( $registry ), array( $type->name => $lazy ) ) );
	}

	/**
	 * Called for each request to another server.
	 *
	 * @param mixed  $response What a plugin has responded.
	 * @param array  $settings Unused.
	 * @param string $url      The URL.
	 */
	public function remote( $response, $settings, $url ) {
		$this->end( "a request for $url", $this->frames() );
		return $response;
	}

	/**
	 * Called for each hook, before its callbacks.
	 *
	 * @param string $hook Its name.
	 */
	public function hook( $hook ) {
		if ( 0 === strpos( $hook, 'pre_option_' ) ) {
			$option = substr( $hook, strlen( 'pre_option_' ) );
			if ( ! in_array( $option, self::VOLATILE, true ) ) {
				$this->options[ $option ] = true;
			}
		} elseif ( 'plugins_loaded' === $hook ) {
			$this->end_after( $hook, self::BEFORE_COOKIES );
		} elseif ( 'after_setup_theme' === $hook ) {
			$this->end_after( $hook, self::BEFORE_USER );
		} elseif ( 'init' === $hook ) {
			$this->init();
		} elseif ( 'wp_default_scripts' === $hook && did_action( 'init' ) ) {
			$this->begin_scripts();
		} elseif ( 'wp_loaded' === $hook ) {
			$this->end_after( $hook, array() );
		}
	}

	/**
	 * Ends the boot after the callbacks of a hook, if plugins have callbacks in what follows.
	 *
	 * @param string   $hook  The hook.
	 * @param string[] $hooks What follows; none: in any case.
	 */
	private function end_after( $hook, $hooks ) {
		add_action(
			$hook,
			function () use ( $hooks ) {
				foreach ( $hooks as $name ) {
					if ( $this->callbacks( $name ) !== $this->own[ $name ] ) {
						return $this->end( "a plugin's callback of $name", array() );
					}
				}
				if ( ! $hooks ) {
					$this->end( '', array() );
				}
				$this->is_visitor = self::BEFORE_USER === $hooks;
			},
			PHP_INT_MAX,
			0
		);
	}

	/**
	 * Before `init`: everything from here on sees a request that nobody has looked at.
	 */
	private function init() {
		$this->replace( 'kses_init', 'kses' );
		foreach ( self::POSTPONED as $name ) {
			$this->replace( $name, 'postpone' );
		}
		$this->forget_user();
	}

	/**
	 * Replaces a callback of `init`; for the rest of WordPress it stays what it is.
	 *
	 * @param callable $callback The callback.
	 * @param string   $method   What is called in its place.
	 */
	private function replace( $callback, $method ) {
		global $wp_filter;

		$priority = has_action( 'init', $callback );
		if ( false !== $priority ) {
			$key = _wp_filter_build_unique_id( 'init', $callback, $priority );

			$wp_filter['init']->callbacks[ $priority ][ $key ]['function'] = function () use ( $callback, $method ) {
				$this->$method( $callback );
			};
		}
	}

	/**
	 * Before WordPress puts nonces and the user's name into its scripts: those of a visitor.
	 */
	private function begin_scripts() {
		$this->is_visitor    = true;
		$this->makes_scripts = true;
		if ( false === has_action( 'wp_default_scripts', array( $this, 'end_scripts' ) ) ) {
			$this->plugins_make_scripts = $this->callbacks( 'wp_default_scripts' ) !== $this->own['wp_default_scripts'];
		}
		add_action( 'wp_default_scripts', array( $this, 'end_scripts' ), PHP_INT_MAX );
	}

	/**
	 * After that.
	 *
	 * @param WP_Scripts $scripts The scripts.
	 */
	public function end_scripts( $scripts ) {
		if ( ! $this->makes_scripts ) {
			return;
		}
		$this->makes_scripts = false;
		if ( $this->has_ended ) {
			// In a copy: a plugin has looked at the request meanwhile.
			$renewed             = new WP_Scripts();
			$scripts->registered = $renewed->registered + $scripts->registered;
		} else {
			$this->scripts = array_map( array( $this, 'copied' ), $scripts->registered );
			$this->tick    = $this->tick();
			$this->forget_user();
		}
	}

	/**
	 * Whether WordPress may have found the boot's user before `init`.
	 */
	public function has_looked_for_user() {
		return $this->is_visitor;
	}

	/**
	 * The next that asks for the user reads the request.
	 */
	private function forget_user() {
		$this->is_visitor        = false;
		$GLOBALS['current_user'] = null;
	}

	/**
	 * In place of kses_init(): the boot is that of a visitor.
	 */
	private function kses() {
		$this->is_visitor = ! $this->has_ended;
		$has_ended        = $this->has_ended;
		kses_init();
		if ( ! $this->has_ended ) {
			$this->forget_user();
		} elseif ( ! $has_ended ) {
			kses_init();
		}
	}

	/**
	 * In place of a callback that needs the request.
	 *
	 * @param string $name Its name.
	 */
	private function postpone( $name ) {
		if ( $this->has_ended ) {
			$name();
		} else {
			$this->postponed[] = $name;
		}
	}

	/**
	 * What the nonces of a visitor and the name of the time zone depend on.
	 */
	private function tick() {
		return wp_nonce_tick() . ( new DateTime( 'now', wp_timezone() ) )->format( 'T' );
	}

	/**
	 * Whether the boot's scripts are those of this request.
	 */
	private function has_scripts_of_visitor() {
		// phpcs:ignore WordPress.Security.NonceVerification.Recommended
		return ! $this->plugins_make_scripts && ! is_user_logged_in() && ! isset( $_COOKIE[ LOGGED_IN_COOKIE ] ) && ! isset( $_GET['user_id'] );
	}

	/**
	 * Whether the boot is too old.
	 */
	public function is_outdated() {
		return null !== $this->scripts && $this->tick() !== $this->tick;
	}

	/**
	 * Scripts with the data of this request in place of the boot's; what plugins have added to them stays.
	 */
	public function renew_scripts() {
		global $wp_scripts;

		if ( null === $this->scripts ) {
			return;
		}
		if ( $this->has_scripts_of_visitor() && ! $this->is_outdated() ) {
			if ( isset( $wp_scripts->registered['utils']->extra['data'] ) ) {
				$data = &$wp_scripts->registered['utils']->extra['data'];
				$data = preg_replace( '/"time":"\d+"/', '"time":"' . time() . '"', $data );
			}
			return;
		}
		$booted     = $wp_scripts;
		$wp_scripts = new WP_Scripts();
		foreach ( $this->scripts as $handle => $before ) {
			$now = isset( $booted->registered[ $handle ] ) ? $booted->registered[ $handle ] : null;
			$new = isset( $wp_scripts->registered[ $handle ] ) ? $wp_scripts->registered[ $handle ] : null;
			if ( $now && $new && in_array( $handle, $this->changed, true ) ) {
				$booted->registered[ $handle ] = $this->merged( $before, $now, $new );
			} elseif ( $now && $new ) {
				$booted->registered[ $handle ] = $new;
			}
		}
		$wp_scripts = $booted;
	}

	/**
	 * A script as it is now, with the new data in place of the data before.
	 *
	 * @param _WP_Dependency $before As WordPress has made it in the boot.
	 * @param _WP_Dependency $now    As it was at the end of the boot.
	 * @param _WP_Dependency $new    As WordPress has made it for this request.
	 */
	private function merged( $before, $now, $new ) {
		$merged = clone $now;
		foreach ( $new->extra as $key => $value ) {
			$old  = isset( $before->extra[ $key ] ) ? $before->extra[ $key ] : null;
			$kept = isset( $now->extra[ $key ] ) ? $now->extra[ $key ] : null;
			if ( $kept === $old ) {
				$merged->extra[ $key ] = $value;
			} elseif ( is_array( $kept ) && is_array( $old ) ) {
				$merged->extra[ $key ] = array_merge( $value, array_slice( $kept, count( $old ) ) );
			} elseif ( is_string( $kept ) && is_string( $old ) && 0 === strpos( $kept, $old ) ) {
				$merged->extra[ $key ] = $value . substr( $kept, strlen( $old ) );
			}
		}
		return $merged;
	}

	/**
	 * A copy.
	 *
	 * @param object $value An object.
	 */
	private function copied( $value ) {
		return clone $value;
	}

	/**
	 * Whether the request is one for which WordPress itself boots in another way.
	 */
	public function is_other() {
		// phpcs:disable WordPress.Security.NonceVerification.Recommended, WordPress.Security.ValidatedSanitizedInput
		$cookie = defined( 'RECOVERY_MODE_COOKIE' ) ? RECOVERY_MODE_COOKIE : '';
		return is_ssl() !== $this->is_ssl
			|| isset( $_GET['_locale'] ) || isset( $_GET['wp_theme_preview'] ) || isset( $_REQUEST['wp_customize'] )
			|| ! empty( $_GET['customize_changeset_uuid'] ) || ! empty( $_POST['customize_changeset_uuid'] )
			|| isset( $_GET['rm_token'] ) || ! empty( $_COOKIE[ $cookie ] );
		// phpcs:enable
	}

	/**
	 * Ends the boot, and returns in copies.
	 *
	 * @param string $what   What depends on the request; empty: nothing does.
	 * @param array  $frames The stack.
	 */
	private function end( $what, $frames ) {
		global $wp_scripts;

		if ( $this->has_ended ) {
			return;
		}
		$this->has_ended = true;
		remove_filter( 'query', array( $this, 'query' ), PHP_INT_MIN );
		remove_filter( 'pre_http_request', array( $this, 'remote' ), PHP_INT_MIN );
		remove_filter( 'pre_get_block_templates', array( $this, 'templates' ), PHP_INT_MIN );
		remove_action( 'all', array( $this, 'hook' ) );
		$this->postpone_list_of_templates();
		foreach ( $this->scripts ?: array() as $handle => $before ) {
			// phpcs:ignore Universal.Operators.StrictComparisons
			if ( isset( $wp_scripts->registered[ $handle ] ) && $wp_scripts->registered[ $handle ] != $before ) {
				$this->changed[] = $handle;
			}
		}
		// phpcs:ignore WordPress.PHP.DevelopmentFunctions.error_log_error_log
		error_log( 'maitred snapshot: ' . $this->sentence( $what, $frames ) );
		maitred_snapshot_wordpress( $this );
	}

	/**
	 * Where the boot ends, and why.
	 *
	 * @param string $what   What depends on the request.
	 * @param array  $frames The stack.
	 */
	private function sentence( $what, $frames ) {
		if ( '' === $what ) {
			return 'plugins, theme and init are in the boot, up to wp_loaded';
		}
		$frame = $this->foreign( $frames );
		$frame = $frame ? $frame : ( $frames ? $frames[0] : null );
		$hook  = current_action();
		return 'the boot ends ' . ( $hook ? "in $hook" : 'while plugins are loaded' ) . ": $what"
			. ( $frame ? " in {$frame['file']} on line {$frame['line']}" : '' );
	}

	/**
	 * The places in the code that are being executed, the innermost first, with the function around each.
	 */
	private function frames() {
		// phpcs:ignore WordPress.PHP.DevelopmentFunctions.error_log_debug_backtrace
		$calls  = debug_backtrace( DEBUG_BACKTRACE_IGNORE_ARGS );
		$frames = array();
		for ( $i = 2; $i < count( $calls ); $i++ ) {
			$call = $calls[ $i ];
			if ( isset( $calls[ $i - 1 ]['file'] ) ) {
				$name     = isset( $call['class'] ) ? $call['class'] . '::' . $call['function'] : $call['function'];
				$frames[] = array( 'name' => $name ) + $calls[ $i - 1 ];
			}
		}
		return $frames;
	}

	/**
	 * The innermost place outside of WordPress.
	 *
	 * @param array $frames The stack.
	 */
	private function foreign( $frames ) {
		foreach ( $frames as $frame ) {
			$rest = 0 === strpos( $frame['file'], $this->root ) ? substr( $frame['file'], strlen( $this->root ) ) : '/';
			if ( __FILE__ !== $frame['file'] && ! preg_match( '#^(wp-includes/|wp-admin/|[^/]+$)#', $rest ) ) {
				return $frame;
			}
		}
		return null;
	}

	/**
	 * The file that is being included; none: a function reads.
	 *
	 * @param array $frames The stack.
	 */
	private function included( $frames ) {
		return preg_match( '/^(require|include)(_once)?$/', $frames[0]['name'] ) ? basename( $frames[0]['file'] ) : '';
	}

	/**
	 * The keys of a hook's callbacks.
	 *
	 * @param string $hook The hook.
	 */
	private function callbacks( $hook ) {
		global $wp_filter;

		return isset( $wp_filter[ $hook ] ) ? array_map( 'array_keys', $wp_filter[ $hook ]->callbacks ) : array();
	}
}

/**
 * Declared when the class of WordPress exists: at the first use of its name.
 */
function maitred_snapshot_declare() {
	/**
	 * The type of the block of template parts, whose list of these is made when it is looked at.
	 */
	// phpcs:ignore Generic.Classes.DuplicateClassName
	class Maitred_Snapshot_Template_Part extends WP_Block_Type {
		/**
		 * The list.
		 *
		 * @param string $name A property.
		 */
		public function &__get( $name ) {
			if ( 'variations' === $name ) {
				$this->variations = build_template_part_block_variations();
			}
			return $this->$name;
		}

		/**
		 * Whether a property exists.
		 *
		 * @param string $name A property.
		 */
		public function __isset( $name ) {
			return 'variations' === $name;
		}
	}
}

/**
 * Chooses where the boot ends.
 */
function maitred_snapshot_choose() {
	$choice = defined( 'MAITRED_SNAPSHOT_WITH_PLUGINS' ) ? MAITRED_SNAPSHOT_WITH_PLUGINS : false;
	if ( ! defined( 'MAITRED_BOOTS' ) || ! MAITRED_BOOTS || defined( 'MAITRED_BOOT_HAS_ENDED' ) ) {
		return;
	}
	if ( $choice && 'https' === wp_parse_url( get_option( 'siteurl' ), PHP_URL_SCHEME ) ) {
		$_SERVER['HTTPS'] = 'on';
	}
	if ( 'traced' === $choice && function_exists( 'maitred_before_request_read' ) ) {
		( new Maitred_Snapshot_Trace() )->start();
	} elseif ( $choice && 'traced' !== $choice ) {
		// In place of that of maitred-index.php.
		if ( function_exists( 'maitred_before_request_read' ) ) {
			maitred_before_request_read( '__return_false' );
		}
		add_action( 'wp_loaded', 'maitred_snapshot_wordpress', PHP_INT_MAX, 0 );
	} else {
		maitred_snapshot_wordpress();
	}
}

maitred_snapshot_choose();
