<?php
/**
 * What pages show.
 *
 * Belongs to maitred-cache.php, into a folder of that name beside it.
 *
 * @package Maitred
 */

defined( 'ABSPATH' ) || exit;

/**
 * What pages show.
 */
trait Maitred_Cache_Page {

	/**
	 * The main query is done, and nothing has been sent yet.
	 */
	public static function begin_page() {
		if ( 'GET' !== self::method() || is_user_logged_in() ) {
			return;
		}
		self::$is_page = true;
		self::see_main_query( $GLOBALS['wp_query'] );
		self::send_tags();
		// Widgets and blocks have queries of their own, which come when the page has begun.
		ob_start( array( __CLASS__, 'end_page' ), self::MAX_HELD_BACK );
	}

	/**
	 * The page, or as much as is held back of it, is on its way.
	 *
	 * @param string $content What is sent.
	 * @param int    $phase   Which part of the page it is (PHP_OUTPUT_HANDLER_*).
	 * @return string The same.
	 */
	public static function end_page( $content, $phase ) {
		if ( ! ( $phase & PHP_OUTPUT_HANDLER_FINAL ) ) {
			// The rest of the page is unknown.
			self::show( 'many' );
		}
		self::send_tags();
		return $content;
	}

	/**
	 * Says that an answer of the REST API's is not to be kept: it has no tags.
	 *
	 * @param WP_HTTP_Response $answer The answer.
	 * @return WP_HTTP_Response The same.
	 */
	public static function mark_answer( $answer ) {
		if ( $answer instanceof WP_HTTP_Response ) {
			$answer->header( 'CDN-Cache-Control', 'no-store' );
		}
		return $answer;
	}

	/**
	 * Sends the page's tags.
	 */
	private static function send_tags() {
		if ( headers_sent() ) {
			return;
		}
		if ( defined( 'DONOTCACHEPAGE' ) && DONOTCACHEPAGE ) {
			// What plugins for caches agree on: carts, accounts, forms with a token.
			header_remove( 'Cache-Groups' );
			header( 'CDN-Cache-Control: no-store' );
			return;
		}
		if ( count( self::$shown ) > self::MAX_TAGS ) {
			self::$shown = array( self::name( 'many' ) => true );
		}
		$names = array_keys( self::$shown );
		array_unshift( $names, 'wp', self::name( '' ) );
		header( 'Cache-Groups: ' . self::listed( $names ) );
	}

	/**
	 * Notes what the page's own query shows.
	 *
	 * @param WP_Query $query The query.
	 */
	private static function see_main_query( $query ) {
		if ( $query->is_robots() || $query->is_favicon() ) {
			return;
		}
		if ( $query->get( 'sitemap' ) || $query->get( 'sitemap-stylesheet' ) ) {
			// The query itself is that of the front page, and its posts are not shown.
			self::show( 'sitemap' );
			return;
		}
		$kinds = array(
			'404'    => $query->is_404(),
			'home'   => $query->is_home(),
			'search' => $query->is_search(),
			'feed'   => $query->is_feed() && ! $query->is_comment_feed(),
		);
		foreach ( array_keys( array_filter( $kinds ) ) as $kind ) {
			self::show( (string) $kind );
		}
		if ( $query->is_comment_feed() && ! $query->is_singular() ) {
			self::show( 'comments' );
		}
		$object = $query->get_queried_object();
		if ( $object instanceof WP_Term ) {
			self::show( 'term-' . $object->term_taxonomy_id );
		} elseif ( $query->is_author() ) {
			self::show( 'author-' . (int) $query->get( 'author' ) );
		}
		if ( $query->is_date() ) {
			$year = $query->get( 'year' );
			self::show( 'date-' . ( $year ? (int) $year : substr( (string) $query->get( 'm' ), 0, 4 ) ) );
		}
		if ( $query->is_post_type_archive() ) {
			self::show_lists( $query->get( 'post_type' ) );
		}
		self::show_posts( (array) $query->posts );
	}

	/**
	 * Notes what a query of a widget's or block's shows.
	 *
	 * @param WP_Query $query The query.
	 */
	public static function see_query( $query ) {
		if ( ! self::$is_page || $query->is_main_query() ) {
			return;
		}
		$named = array_merge( array( $query->get( 'p' ), $query->get( 'page_id' ) ), (array) $query->get( 'post__in' ) );
		$named = array_filter( $named );
		if ( $named ) {
			self::show_posts( $named );
		} else {
			self::show_lists( $query->get( 'post_type' ) );
		}
	}

	/**
	 * Notes whose comments are shown.
	 *
	 * @param WP_Comment_Query $query The query.
	 */
	public static function see_comments( $query ) {
		if ( self::$is_page ) {
			$post = isset( $query->query_vars['post_id'] ) ? (int) $query->query_vars['post_id'] : 0;
			self::show( $post ? "post-$post" : 'comments' );
		}
	}

	/**
	 * Notes a list of pages, as menus have it.
	 *
	 * @param array $pages The pages.
	 * @param array $args  What was asked for.
	 * @return array The pages.
	 */
	public static function see_pages( $pages, $args ) {
		if ( self::$is_page ) {
			self::show_lists( isset( $args['post_type'] ) ? $args['post_type'] : 'page' );
		}
		return $pages;
	}

	/**
	 * Notes what an item of a classic menu names: its title and address are on the page, and the
	 * address has those of the pages above it.
	 *
	 * @param object $item The item.
	 * @return object The same.
	 */
	public static function see_menu_item( $item ) {
		if ( self::$is_page && isset( $item->type, $item->object_id ) && 'post_type' === $item->type ) {
			$post_id = (int) $item->object_id;
			self::show_posts( array_merge( array( $post_id ), get_post_ancestors( $post_id ) ) );
		}
		return $item;
	}

	/**
	 * Notes a link to the post before or after.
	 *
	 * @param string          $link   The link.
	 * @param string          $format Its format.
	 * @param string          $text   Its text.
	 * @param WP_Post|string  $post   The post.
	 * @return string The link.
	 */
	public static function see_neighbour( $link, $format, $text, $post ) {
		if ( self::$is_page && $post instanceof WP_Post ) {
			self::show_posts( array( $post ) );
		}
		return $link;
	}

	/**
	 * Notes a list of months, categories or tags, which a new post may be the first of.
	 *
	 * @param mixed $shown The list.
	 * @return mixed The list.
	 */
	public static function see_summary( $shown ) {
		if ( self::$is_page ) {
			self::show( 'list-post' );
		}
		return $shown;
	}

	/**
	 * Notes posts.
	 *
	 * @param array $posts Posts, or their IDs.
	 */
	private static function show_posts( $posts ) {
		foreach ( $posts as $post ) {
			self::show( 'post-' . (int) ( is_object( $post ) ? $post->ID : $post ) );
			if ( count( self::$shown ) > self::MAX_TAGS ) {
				return;
			}
		}
	}

	/**
	 * Notes lists of posts.
	 *
	 * @param string|array $types The types of the posts.
	 */
	private static function show_lists( $types ) {
		foreach ( array_diff( (array) ( $types ? $types : 'post' ), self::PARTS, self::UNSEEN ) as $type ) {
			self::show( 'list-' . sanitize_key( $type ) );
		}
	}

	/**
	 * Notes a tag of the page.
	 *
	 * @param string $tag The tag.
	 */
	private static function show( $tag ) {
		self::$shown[ self::name( $tag ) ] = true;
	}
}
