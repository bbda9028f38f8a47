//! Reading back what is there.

use super::attr::{attributes, find, number, string};
use super::batch::SUBSYSTEM;
use super::error::NftError;
use super::expr::{DATA_VERDICT, Verdict};
use super::object::{
    CHAIN_HOOK, CHAIN_NAME, CHAIN_POLICY, CHAIN_TABLE, CHAIN_TYPE, DATA_VALUE, Data, ELEM_DATA, ELEM_FLAGS,
    ELEM_KEY, ELEM_USERDATA, Element, Family, SET_DATA_TYPE, SET_KEY_TYPE, SET_NAME, SET_TABLE,
};
use super::socket::Nft;

const GET_TABLE: u16 = (SUBSYSTEM << 8) | 1;
const GET_CHAIN: u16 = (SUBSYSTEM << 8) | 4;
const GET_SET: u16 = (SUBSYSTEM << 8) | 10;
const GET_ELEMENT: u16 = (SUBSYSTEM << 8) | 13;

/// A chain that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainInfo {
    /// Its name.
    pub name: String,
    /// For a base chain: kind, hook number, priority.
    pub base: Option<(String, u32, i32)>,
    /// A base chain that drops what none of its rules accepts.
    pub drops: bool,
}

/// A set or map that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetInfo {
    /// Its name.
    pub name: String,
    /// nft's number for its key, as [`super::type_id`] gives it.
    pub key_type: u32,
    /// The same for its values, in a map.
    pub data_type: Option<u32>,
}

impl Nft {
    /// The names of the tables of a family.
    ///
    /// # Errors
    /// [`NftError`].
    pub fn tables(&mut self, family: Family) -> Result<Vec<String>, NftError> {
        self.dump(GET_TABLE, family, "tables", |_| {}, |bytes| find(bytes, 1).map(string))
    }

    /// The chains of a table; none if it is absent.
    ///
    /// # Errors
    /// [`NftError`].
    pub fn chains(&mut self, family: Family, table: &str) -> Result<Vec<ChainInfo>, NftError> {
        let read = |bytes: &[u8]| {
            if string(find(bytes, CHAIN_TABLE)?) != table {
                return None;
            }
            let base = find(bytes, CHAIN_HOOK).and_then(|hook| {
                let kind = find(bytes, CHAIN_TYPE).map(string).unwrap_or_default();
                Some((kind, number(find(hook, 1)?)?, number(find(hook, 2)?)?.cast_signed()))
            });
            // NF_DROP is 0.
            let drops = base.is_some() && find(bytes, CHAIN_POLICY).and_then(number) == Some(0);
            Some(ChainInfo { name: string(find(bytes, CHAIN_NAME)?), base, drops })
        };
        self.dump(GET_CHAIN, family, "chains", |_| {}, read)
    }

    /// The sets and maps of a table; an error if it is absent.
    ///
    /// # Errors
    /// [`NftError`].
    pub fn sets(&mut self, family: Family, table: &str) -> Result<Vec<SetInfo>, NftError> {
        let read = |bytes: &[u8]| {
            Some(SetInfo {
                name: string(find(bytes, SET_NAME)?),
                key_type: number(find(bytes, SET_KEY_TYPE)?)?,
                data_type: find(bytes, SET_DATA_TYPE).and_then(number),
            })
        };
        self.dump(GET_SET, family, "sets", |out| out.text(SET_TABLE, table), read)
    }

    /// The elements of a set, in no order; an error if it is absent.
    ///
    /// # Errors
    /// [`NftError`].
    pub fn elements(&mut self, family: Family, table: &str, set: &str) -> Result<Vec<Element>, NftError> {
        let ask = |out: &mut super::attr::Writer| {
            out.text(1, table);
            out.text(2, set);
        };
        let read = |bytes: &[u8]| {
            let list = find(bytes, 3)?;
            Some(attributes(list).filter_map(|(_, element)| read_element(element)).collect::<Vec<_>>())
        };
        let chunks = self.dump(GET_ELEMENT, family, "elements", ask, read)?;
        Ok(chunks.into_iter().flatten().collect())
    }
}

fn read_element(bytes: &[u8]) -> Option<Element> {
    let key = find(find(bytes, ELEM_KEY)?, DATA_VALUE)?.to_vec();
    let data = find(bytes, ELEM_DATA).and_then(|data| {
        let value = find(data, DATA_VALUE).map(|value| Data::Value(value.to_vec()));
        value.or_else(|| Some(Data::Verdict(Verdict::read(find(data, DATA_VERDICT)?)?)))
    });
    let flags = find(bytes, ELEM_FLAGS).and_then(number).unwrap_or(0);
    let comment = find(bytes, ELEM_USERDATA).and_then(read_comment);
    Some(Element { key, data, timeout: None, closes_range: flags & 1 != 0, comment })
}

/// The comment among (type, length, value) each.
fn read_comment(mut data: &[u8]) -> Option<String> {
    while let [kind, length, rest @ ..] = data {
        let value = rest.get(..usize::from(*length))?;
        if *kind == 0 {
            return Some(string(value));
        }
        data = &rest[value.len()..];
    }
    None
}
