"""All applications, in the order of the page."""

import database_tools
import frameworks
import monitoring
import services
import wikis

ALL = (
    wikis.WordPress,
    wikis.MediaWiki,
    wikis.DokuWiki,
    wikis.Shaarli,
    wikis.TinyTinyRss,
    services.Roundcube,
    services.PostfixAdmin,
    services.SimpleSaml,
    database_tools.PhpMyAdmin,
    database_tools.Adminer,
    database_tools.PhpLiteAdmin,
    database_tools.PhpLdapAdmin,
    database_tools.LdapAccountManager,
    monitoring.Cacti,
    monitoring.IcingaWeb,
    monitoring.Zabbix,
    monitoring.ZoneMinder,
    monitoring.NagVis,
    monitoring.PhpSysInfo,
    frameworks.Symfony,
    frameworks.Laravel,
    frameworks.Slim,
    frameworks.SabreDav,
)
