// What is wrong with a router, from its figures; the worst first.
import { numeric, text, type Row } from './values';

export interface Facts {
    router: Row;
    policy: Row | null; // null: the user may not read it
    connectors: Row[];
    autoLinks: Row[];
    linkRoutes: Row[];
    bans: number;
    shadow: Row | null;
}

export interface Problem {
    text: string;
    isBad: boolean;
    page: string; // where more is
    parts: string[];
}

const FULL = 0.8; // of the file descriptors
const MANY_DENIALS = 1; // in a second

export function problems({ router, policy, connectors, autoLinks, linkRoutes, shadow }: Facts, denialRate: number): Problem[] {
    const found: Problem[] = [];
    const add = (isBad: boolean, words: string, page: string, ...parts: string[]): void => void found.push({ text: words, isBad, page, parts });
    const audit = text(router['auditState']);
    if (audit === 'failing' || audit === 'overrun') add(true, `The audit log is ${audit === 'failing' ? 'not being written' : 'behind'}: ${text(router['auditLost'])} records lost.`, 'entities', 'router');
    for (const each of connectors) {
        const status = text(each['connectionStatus']);
        if (status && status !== 'SUCCESS') add(status !== 'CONNECTING' || !!each['connectionMsg'], `Connector ${text(each['name'])} to ${text(each['host'])}:${text(each['port'])} is not connected: ${text(each['connectionMsg']) || status}`, 'entities', 'connector');
    }
    for (const each of autoLinks) if (text(each['operStatus']) === 'failed') add(true, `Auto link ${text(each['name']) || text(each['addr'])} failed: ${text(each['lastError'])}`, 'entities', 'router.config.autoLink');
    if (numeric(router['deliveriesStuck']) > 0) add(true, `${text(router['deliveriesStuck'])} deliveries are stuck: their receivers do not take them.`, 'entities', 'router.link');
    if (policy && numeric(policy['policyChangeFailures']) > 0) add(true, 'A change of the policy could not be used: the rules before it are in force. The log says why.', 'logs');
    if (shadow && text(shadow['state']) !== 'active') add(false, `The candidate policy is ${text(shadow['state'])}: ${text(shadow['error'])}`, 'policy');
    const limit = numeric(router['fileDescriptorLimit']);
    if (limit > 0 && numeric(router['fileDescriptorCount']) > FULL * limit) add(false, `File descriptors run out: ${text(router['fileDescriptorCount'])} of ${limit}.`, 'entities', 'router');
    if (numeric(router['blockedLinkCount']) > 0) add(false, `${text(router['blockedLinkCount'])} links have had no credit for ten seconds or more.`, 'entities', 'router.link');
    const idle = linkRoutes.filter((each) => text(each['operStatus']) === 'inactive').length;
    if (idle > 0) add(false, `${idle} link routes have no connection.`, 'entities', 'router.config.linkRoute');
    if (denialRate >= MANY_DENIALS) add(false, `${Math.round(denialRate)} denials a second.`, 'policy');
    if (policy && policy['enableVhostPolicy'] === false) add(false, 'No vhost policy is enforced: whoever connects may do everything.', 'policy');
    return found.sort((a, b) => Number(b.isBad) - Number(a.isBad));
}
