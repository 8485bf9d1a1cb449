//! The ACME protocol from the account to the certificate chain (RFC 8555 §7).

use std::time::Duration;

use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, ChallengeType, Error, ExternalAccountKey,
    Identifier, NewAccount, NewOrder, Order as AcmeOrder, OrderStatus, RetryPolicy,
};
use maitred_control::acme::{
    Cause, FromAcme, MAX_ACCOUNT_BYTES, MAX_CHAIN_BYTES, Order, Proof, Secret,
};

use crate::failure::{Failure, kind};
use crate::http::{Client, RetryAfter};
use crate::link::Link;

/// How often to poll the authority: after a quarter of a second, and each time half as long again,
/// for a minute.
const POLLS: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .backoff(1.5)
    .timeout(Duration::from_secs(60));

/// Obtains the certificate chain of an order.
///
/// # Errors
/// Why there is none.
pub async fn hold(order: &Order, link: &Link) -> Result<String, Failure> {
    let retry_after = RetryAfter::default();
    let mut came_to = converse(order, link, &retry_after).await;
    if let Err(failure) = &mut came_to {
        failure.retry_after = retry_after.get();
    }
    came_to
}

async fn converse(order: &Order, link: &Link, waits: &RetryAfter) -> Result<String, Failure> {
    let mut begun = begin(order, link, waits).await?;
    prove_all(order, link, &mut begun).await?;
    match begun.poll_ready(&POLLS).await {
        Ok(OrderStatus::Ready) => {}
        Ok(_) | Err(Error::Api(_)) => return Err(not_proven(order, &mut begun).await),
        Err(error) => return Err(Failure::of("its look at the host", error)),
    }
    let signed = begun.finalize_csr(&order.request).await;
    signed.map_err(|error| Failure::of("the certificate", error))?;
    let chain = begun.poll_certificate(&POLLS).await;
    let chain = chain.map_err(|error| Failure::of("the certificate", error))?;
    if chain.len() > MAX_CHAIN_BYTES {
        let why = format!("what the authority issued has more than {MAX_CHAIN_BYTES} bytes");
        Err(Failure::new(Cause::Refused, why))
    } else {
        Ok(chain)
    }
}

/// Creates an order, with the stored account or a new one. An authority may have forgotten an
/// account.
async fn begin(order: &Order, link: &Link, waits: &RetryAfter) -> Result<AcmeOrder, Failure> {
    let host = [Identifier::Dns(order.name.clone())];
    let new = NewOrder::new(&host);
    if let Some(account) = kept(order, waits).await? {
        match account.new_order(&new).await {
            Err(Error::Api(problem)) if kind(&problem) == "accountDoesNotExist" => {}
            begun => return begun.map_err(|error| Failure::of("the order", error)),
        }
    }
    let account = create(order, link, waits).await?;
    let begun = account.new_order(&new).await;
    begun.map_err(|error| Failure::of("the order", error))
}

fn client(order: &Order, waits: &RetryAfter) -> Result<Box<Client>, Failure> {
    let client = Client::new(order.roots.as_deref(), waits.clone());
    let client = client.map_err(|why| Failure::new(Cause::Unreachable, why))?;
    Ok(Box::new(client))
}

async fn kept(order: &Order, waits: &RetryAfter) -> Result<Option<Account>, Failure> {
    let Some(Secret(account)) = &order.account else {
        return Ok(None);
    };
    // An account that cannot be parsed counts as none.
    let Some(account) = credentials(account, &order.directory) else {
        return Ok(None);
    };
    let builder = Account::builder_with_http(client(order, waits)?);
    let account = builder.from_credentials(account).await;
    account.map(Some).map_err(|error| Failure::of("its directory", error))
}

/// The credentials of an account at the authority with this directory. With those of another one,
/// that other one would get the order.
fn credentials(account: &str, directory: &str) -> Option<AccountCredentials> {
    let fields: serde_json::Value = serde_json::from_str(account).ok()?;
    let is_there = fields.get("directory")?.as_str()? == directory;
    is_there.then(|| serde_json::from_str(account).ok()).flatten()
}

async fn create(order: &Order, link: &Link, waits: &RetryAfter) -> Result<Account, Failure> {
    let email = order.email.as_ref().map(|email| format!("mailto:{email}"));
    let contact: Vec<&str> = email.as_deref().into_iter().collect();
    let new = NewAccount {
        contact: &contact,
        terms_of_service_agreed: true,
        only_return_existing: false,
    };
    let external = order.external_account.as_ref().map(|(id, Secret(key))| {
        let key = decoded(key).ok_or_else(|| {
            let why = "the key of `external_account` is not in base64url; copy it again";
            Failure::new(Cause::Refused, why.to_owned())
        })?;
        Ok::<_, Failure>(ExternalAccountKey::new(id.clone(), &key))
    });
    let external = external.transpose()?;
    let builder = Account::builder_with_http(client(order, waits)?);
    let created = builder.create(&new, order.directory.clone(), external.as_ref());
    let created = created.await;
    let (account, kept) = created.map_err(|error| Failure::of("an account", error))?;
    let kept = serde_json::to_string(&kept).unwrap_or_default();
    if kept.len() > MAX_ACCOUNT_BYTES {
        let why = format!("the account has more than {MAX_ACCOUNT_BYTES} bytes");
        return Err(Failure::new(Cause::Refused, why));
    }
    say(link, &FromAcme::Account { account: Secret(kept) })?;
    Ok(account)
}

/// Decodes base64url (RFC 4648 §5).
fn decoded(text: &str) -> Option<Vec<u8>> {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    URL_SAFE_NO_PAD.decode(text.trim().trim_end_matches('=')).ok()
}

fn say(link: &Link, report: &FromAcme) -> Result<(), Failure> {
    let said = link.say(report);
    said.map_err(|why| Failure::new(Cause::Unreachable, why))
}

/// Proves control of the host, unless the authority has a valid authorization already.
async fn prove_all(order: &Order, link: &Link, begun: &mut AcmeOrder) -> Result<(), Failure> {
    let wanted = if order.by_file { ChallengeType::Http01 } else { ChallengeType::TlsAlpn01 };
    let mut authorizations = begun.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization =
            authorization.map_err(|error| Failure::of("its challenges", error))?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let Some(mut challenge) = authorization.challenge(wanted.clone()) else {
            let why = format!("the authority does not offer the challenge {}", named(order));
            return Err(Failure::new(Cause::Refused, why));
        };
        let key = challenge.key_authorization();
        let proof = if order.by_file {
            Proof::File {
                name: order.name.clone(),
                token: challenge.token.clone(),
                contents: key.as_str().to_owned(),
            }
        } else {
            Proof::Certificate {
                name: order.name.clone(),
                digest: key.digest().as_ref().try_into().unwrap_or_default(),
            }
        };
        say(link, &FromAcme::Prove(proof))?;
        let published = link.published().await;
        published.map_err(|why| Failure::new(Cause::Unreachable, why))?;
        let ready = challenge.set_ready().await;
        ready.map_err(|error| Failure::of("its look at the host", error))?;
    }
    Ok(())
}

fn named(order: &Order) -> &'static str {
    if order.by_file { "http-01" } else { "tls-alpn-01" }
}

/// The authority's reason for a failed challenge.
async fn not_proven(order: &Order, begun: &mut AcmeOrder) -> Failure {
    let does = format!("did not find by {} that {} is ours", named(order), order.name);
    let mut authorizations = begun.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let Ok(state) = authorization.refresh().await else {
            break;
        };
        let mut challenges = state.challenges.iter();
        if let Some(problem) = challenges.find_map(|challenge| challenge.error.as_ref()) {
            return Failure::refused(&does, problem);
        }
    }
    let why = format!("the authority {does}, and does not say why");
    Failure::new(Cause::Refused, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_at_another_authority_counts_as_none() {
        // Base64url without padding, as instant-acme writes it.
        let account = r#"{"id":"https://a/1","key_pkcs8":"AAAA","directory":"https://a/dir"}"#;
        assert!(credentials(account, "https://a/dir").is_some());
        assert!(credentials(account, "https://b/dir").is_none());
        assert!(credentials("{}", "https://a/dir").is_none());
        assert!(credentials("garbage", "https://a/dir").is_none());
    }

    #[test]
    fn keys_of_external_accounts_may_have_padding_and_an_end_of_line() {
        assert_eq!(decoded("-_8=\n"), Some(vec![0xfb, 0xff]));
        assert_eq!(decoded("-_8"), Some(vec![0xfb, 0xff]));
        assert_eq!(decoded("not base64!"), None);
    }
}
